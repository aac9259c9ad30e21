import { create } from '@bufbuild/protobuf';
import fc from 'fast-check';
import { EventSchema, ReplicaStatus_Phase as Phase } from '@cloudless/api';
import {
  ControlRecordSchema,
  NodeRecordSchema,
  ReplicaRecordSchema,
  VersionRecordSchema,
  WorkloadRecordSchema,
} from '@cloudless/api/store';
import {
  toNameKeyId,
  toReplicaKeyId,
  toVersionKeyId,
  type RecordKind,
  type RecordOf,
} from '../records/records.js';
import { IndexedView, type Stored } from './view.js';

interface Write {
  readonly kind: RecordKind;
  readonly id: string;
  readonly value: RecordOf<RecordKind> | undefined;
}

const uids = ['u1', 'u2', 'u3'];
const uid = fc.constantFrom(...uids);
const small = fc.integer({ min: 1, max: 6 });
const orDeleted = <Value>(value: fc.Arbitrary<Value>): fc.Arbitrary<Value | undefined> =>
  fc.option(value, { nil: undefined, freq: 3 });

const arbReplica: fc.Arbitrary<Write> = fc
  .tuple(
    uid,
    small,
    orDeleted(
      fc.record({
        nodeId: fc.constantFrom('', 'n1', 'n2'),
        phase: fc.integer({ min: 0, max: 7 }),
        desiredRunning: fc.boolean(),
        lost: fc.boolean(),
      }),
    ),
  )
  .map(([owner, sequence, fields]) => ({
    kind: 'replica',
    id: toReplicaKeyId(owner, BigInt(sequence)),
    value:
      fields &&
      create(ReplicaRecordSchema, {
        id: `${owner}-${sequence}`,
        uid: owner,
        sequence: BigInt(sequence),
        ...fields,
      }),
  }));
/** Records whose keys or ids do not follow from workload and sequence number. */
const arbOddReplica: fc.Arbitrary<Write> = fc
  .tuple(uid, small, fc.constantFrom('/', '/0', '/x', ''), orDeleted(fc.boolean()))
  .map(([owner, sequence, separator, hasOddId]) => ({
    kind: 'replica',
    id:
      separator === ''
        ? toReplicaKeyId(owner, BigInt(sequence))
        : `${owner}${separator}${sequence}`,
    value:
      hasOddId === undefined
        ? undefined
        : create(ReplicaRecordSchema, {
            id: hasOddId ? `${owner}-0${sequence}` : `odd${separator}-${owner}-${sequence}`,
            uid: owner,
            sequence: BigInt(sequence),
            nodeId: 'n2',
          }),
  }));
const arbVersion: fc.Arbitrary<Write> = fc
  .tuple(uid, small, orDeleted(fc.constant({})))
  .map(([owner, version, fields]) => ({
    kind: 'version',
    id: toVersionKeyId(owner, version),
    value: fields && create(VersionRecordSchema, { version }),
  }));
const arbEvent: fc.Arbitrary<Write> = fc
  .tuple(fc.integer({ min: 10, max: 30 }), orDeleted(fc.string({ maxLength: 2 })))
  .map(([count, message]) => ({
    kind: 'event',
    id: `e${count}`,
    value: message === undefined ? undefined : create(EventSchema, { id: `e${count}`, message }),
  }));
const arbName: fc.Arbitrary<Write> = fc
  .tuple(fc.constantFrom('web', 'db'), orDeleted(uid))
  .map(([name, owner]) => ({
    kind: 'name',
    id: toNameKeyId('default', name),
    value: owner === undefined ? undefined : create(WorkloadRecordSchema, { uid: owner }),
  }));
const arbOther: fc.Arbitrary<Write> = fc.oneof(
  fc.tuple(uid, orDeleted(fc.constantFrom('a', 'b-c', 'b'))).map(([owner, namespace]): Write => ({
    kind: 'workload',
    id: owner,
    value:
      namespace === undefined
        ? undefined
        : create(WorkloadRecordSchema, { uid: owner, namespace, name: `web-${owner}` }),
  })),
  fc.tuple(uid, orDeleted(small)).map(([owner, version]): Write => ({
    kind: 'control',
    id: owner,
    value:
      version === undefined
        ? undefined
        : create(ControlRecordSchema, { uid: owner, activeVersion: version }),
  })),
  fc.tuple(fc.constantFrom('n1', 'n2'), orDeleted(fc.boolean())).map(([id, draining]): Write => ({
    kind: 'node',
    id,
    value:
      draining === undefined
        ? undefined
        : create(NodeRecordSchema, { id, cordoned: true, draining }),
  })),
);
const arbWrites = fc.array(
  fc.oneof(
    arbReplica,
    arbReplica,
    arbReplica,
    arbOddReplica,
    arbVersion,
    arbEvent,
    arbName,
    arbOther,
  ),
  {
    maxLength: 60,
  },
);

const idsOf = (replicas: Iterable<Stored<{ id: string }>>): string[] =>
  [...replicas].map(({ value }) => value.id).sort();

describe('IndexedView', () => {
  it('returns the same as a scan of all records after every change', () => {
    fc.assert(
      fc.property(arbWrites, (writes) => {
        const view = new IndexedView();
        const model = new Map<string, Stored<RecordOf<RecordKind>>>();
        for (const [index, { kind, id, value }] of writes.entries()) {
          const key = `${kind} ${id}`;
          const after = value === undefined ? undefined : { value, revision: BigInt(index) };
          expect(view.apply(kind, id, after)).toEqual({
            kind,
            id,
            ...(model.has(key) ? { before: model.get(key)?.value } : {}),
            ...(after === undefined ? {} : { after: value }),
          });
          if (after === undefined) model.delete(key);
          else model.set(key, after);
          expectSameAsScan(view, model);
        }
      }),
      { numRuns: 150 },
    );
  });

  it('sorts events that arrive out of order, also after removals', () => {
    const view = new IndexedView();
    const put = (id: string): unknown =>
      view.apply('event', id, { value: create(EventSchema, { id }), revision: 1n });
    const listed = (): string[] => view.events().map(({ id }) => id);
    put('b');
    expect(listed()).toEqual(['b']);
    put('d');
    put('c');
    expect(listed()).toEqual(['b', 'c', 'd']);
    view.apply('event', 'b', undefined);
    put('e');
    expect(listed()).toEqual(['c', 'd', 'e']);
  });

  it('lists all events in order, however many changes come between two reads', () => {
    const change = fc.record({
      id: fc.constantFrom('a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'),
      isDeletion: fc.boolean(),
      isRead: fc.boolean(),
    });
    fc.assert(
      fc.property(fc.array(change, { maxLength: 40 }), (changes) => {
        const view = new IndexedView();
        const ids = new Set<string>();
        for (const { id, isDeletion, isRead } of changes) {
          const stored = { value: create(EventSchema, { id }), revision: 1n };
          view.apply('event', id, isDeletion ? undefined : stored);
          if (isDeletion) ids.delete(id);
          else ids.add(id);
          if (isRead) expect(view.events().map((event) => event.id)).toEqual([...ids].sort());
        }
        expect(view.events().map((event) => event.id)).toEqual([...ids].sort());
      }),
    );
  });
});

/** Expects every query of the view to return what a scan of the records returns. */
function expectSameAsScan(
  view: IndexedView,
  model: ReadonlyMap<string, Stored<RecordOf<RecordKind>>>,
): void {
  const all = <Kind extends RecordKind>(kind: Kind): Stored<RecordOf<Kind>>[] =>
    [...model]
      .filter(([key]) => key.startsWith(`${kind} `))
      .map(([, stored]) => stored as Stored<RecordOf<Kind>>);
  const replicas = all('replica');
  expect(idsOf(view.replicas())).toEqual(idsOf(replicas));
  for (const owner of uids) {
    expect(idsOf(view.replicasOf(owner))).toEqual(
      idsOf(replicas.filter(({ value }) => value.uid === owner)),
    );
    expect(view.versions(owner)).toEqual(
      [1, 2, 3, 4, 5, 6].flatMap(
        (version) => model.get(`version ${toVersionKeyId(owner, version)}`)?.value ?? [],
      ),
    );
    expect(view.version(owner, 2)).toBe(model.get(`version ${toVersionKeyId(owner, 2)}`)?.value);
    expect(view.workload(owner)).toBe(model.get(`workload ${owner}`));
    expect(view.control(owner)).toBe(model.get(`control ${owner}`));
  }
  for (const node of ['', 'n1', 'n2']) {
    const placed = node === '' ? [] : replicas.filter(({ value }) => value.nodeId === node);
    expect(idsOf(view.replicasOn(node))).toEqual(idsOf(placed));
    expect(view.node(node)).toBe(model.get(`node ${node}`));
  }
  const waiting = replicas.filter(
    ({ value }) => value.nodeId === '' && value.desiredRunning && value.phase === Phase.PENDING,
  );
  expect(idsOf(view.unplaced())).toEqual(idsOf(waiting));
  const lost = replicas.filter(({ value }) => value.lost);
  expect(idsOf(view.lostReplicas())).toEqual(idsOf(lost));
  for (const { value } of replicas) expect(view.replica(value.id)?.value.id).toBe(value.id);
  const keys = [...model.keys()].filter((key) => key.startsWith('replica '));
  expect([...view.listIds('replica')].map((id) => `replica ${id}`).sort()).toEqual(keys.sort());
  for (const key of keys)
    expect(view.get('replica', key.slice('replica '.length))).toBe(model.get(key));
  const entries = [...view.entries()].map(([kind, id, stored]) => [`${kind} ${id}`, stored]);
  expect(new Map(entries as [string, unknown][])).toEqual(model);
  expect(view.replica('u9-9')).toBeUndefined();
  const names = model.get(`name ${toNameKeyId('default', 'web')}`)?.value as
    RecordOf<'name'> | undefined;
  expect(view.workloadByName('default', 'web')).toBe(names && model.get(`workload ${names.uid}`));
  const sortedIds = (records: Iterable<Stored<{ uid?: string; id?: string }>>): string[] =>
    [...records].map(({ value }) => value.uid ?? value.id ?? '').sort();
  expect(sortedIds(view.workloads())).toEqual(sortedIds(all('workload')));
  const workloadKeys = all('workload')
    .map(({ value }) => toNameKeyId(value.namespace, value.name))
    .sort();
  const nodeIds = all('node')
    .map(({ value }) => value.id)
    .sort();
  for (const after of [undefined, '', 'b/', 'b/web-u2', 'b/web-u2x', 'n1', 'z']) {
    const isAfter = (key: string): boolean => after === undefined || key > after;
    expect(
      [...view.workloadsByName(after)].map(({ value }) => toNameKeyId(value.namespace, value.name)),
    ).toEqual(workloadKeys.filter(isAfter));
    expect([...view.nodesById(after)].map(({ value }) => value.id)).toEqual(
      nodeIds.filter(isAfter),
    );
  }
  expect([view.workloadCount, view.nodeCount]).toEqual([workloadKeys.length, nodeIds.length]);
  expect(sortedIds(view.nodes())).toEqual(sortedIds(all('node')));
  expect(sortedIds(view.drainingNodes())).toEqual(
    sortedIds(all('node').filter(({ value }) => value.draining)),
  );
  expect(view.events().map(({ id }) => id)).toEqual(
    all('event')
      .map(({ value }) => value.id)
      .sort(),
  );
}
