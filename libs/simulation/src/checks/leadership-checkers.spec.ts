import { create } from '@bufbuild/protobuf';
import { CoordinatorMessageSchema } from '@cloudless/api';
import { LeaderRecordSchema } from '@cloudless/api/store';
import type { RecordChange } from '@cloudless/cluster-state';
import { DurableRecords } from '../parts/durable-records.js';
import {
  createLeadershipChecker,
  findLateOrder,
  findSeveralLeaders,
} from './leadership-checkers.js';

const view = new DurableRecords();
const none = { alive: new Set<string>(), draining: new Set<string>(), cordoned: new Set<string>() };
const election = (epoch: bigint): RecordChange =>
  ({
    kind: 'leader',
    id: 'leader',
    after: create(LeaderRecordSchema, { epoch }),
  }) satisfies RecordChange;
const decision: RecordChange = { kind: 'node', id: 'n' };

describe('createLeadershipChecker', () => {
  it('accepts decisions of the newest term, and elections and presence of all coordinators', () => {
    const check = createLeadershipChecker();
    expect(check({ view, changes: [election(1n)], nodeFacts: none })).toEqual([]);
    expect(check({ view, changes: [decision], nodeFacts: { ...none, epoch: 1n } })).toEqual([]);
    const presence = { kind: 'coordinator', id: 'c1' } satisfies RecordChange;
    expect(check({ view, changes: [presence], nodeFacts: none })).toEqual([]);
  });

  it.each([
    {
      name: 'a decision of an old term',
      epoch: 1n,
      expected: /the leader of epoch 1 changed node n/,
    },
    { name: 'a decision of a follower', epoch: undefined, expected: /a follower changed node n/ },
  ])('finds $name', ({ epoch, expected }) => {
    const check = createLeadershipChecker();
    check({ view, changes: [election(1n)], nodeFacts: none });
    check({ view, changes: [election(2n)], nodeFacts: none });
    const nodeFacts = epoch === undefined ? none : { ...none, epoch };
    expect(check({ view, changes: [decision], nodeFacts })).toEqual([
      expect.stringMatching(expected),
    ]);
  });

  it('finds an epoch that was used twice', () => {
    const check = createLeadershipChecker();
    check({ view, changes: [election(2n)], nodeFacts: none });
    expect(check({ view, changes: [election(2n)], nodeFacts: none })).toEqual([
      '7: epoch 2 follows epoch 2',
    ]);
  });
});

it('findSeveralLeaders finds two coordinators that act as leader', () => {
  const [a, b] = ['a', 'b'].map((id) => ({ id, isActing: true }));
  expect(findSeveralLeaders([a!, { ...b!, isActing: false }])).toEqual([]);
  expect(findSeveralLeaders([a!, b!])).toEqual(['7: a and b act as leader at the same time']);
});

it('findLateOrder finds an order of an earlier term than that of the newest leader', () => {
  const value = { epoch: 2n, replicaId: 'w-0', order: { case: 'stop', value: {} } } as const;
  const order = create(CoordinatorMessageSchema, { message: { case: 'order', value } });
  expect([1n, 2n].map((epoch) => findLateOrder(order, epoch))).toEqual([undefined, undefined]);
  expect(findLateOrder(order, 3n)).toBe(
    '7: the leader of epoch 2 orders to stop w-0, but the leader has epoch 3',
  );
});
