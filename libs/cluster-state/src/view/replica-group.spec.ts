import fc from 'fast-check';
import { ReplicaStatus_Phase as Phase } from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import { createReplicaRecord } from '../records/replicas.js';
import { ReplicaGroup } from './replica-group.js';
import { countReplicas, type ReplicaCounts } from './replica-counts.js';

const UID = 'web';
const toStored = (sequence: number, fields: Partial<ReplicaRecord> = {}) => ({
  value: createReplicaRecord({
    id: `web-${sequence}`,
    uid: UID,
    sequence: BigInt(sequence),
    ...fields,
  }),
  revision: 1n,
});
const range = (first: number, last: number): number[] =>
  Array.from({ length: last - first + 1 }, (_, index) => first + index);
const toValue = ({ total, byVersion }: ReplicaCounts) => ({
  total,
  byVersion: Object.fromEntries(
    Array.from(byVersion, ([version, { live, staying, ready, unplaced, succeeded, ...sets }]) => [
      version,
      [live, staying, ready, unplaced, succeeded].concat(
        [
          sets.explainedUnplaced,
          sets.explainedUnready,
          sets.failedWanted,
          sets.failedPresent,
        ].flatMap(({ first = -1, last = -1 }) => [first, last]),
      ),
    ]),
  ),
});
const readAll = (group: ReplicaGroup): ReplicaRecord[] =>
  Array.from(group.values(), ({ value }) => value);

const arbFields = fc.record({
  version: fc.integer({ min: 1, max: 3 }),
  phase: fc.integer({ min: 0, max: 7 }),
  nodeId: fc.constantFrom('', 'n1'),
  desiredRunning: fc.boolean(),
  ready: fc.boolean(),
  lost: fc.boolean(),
  reason: fc.constantFrom('', 'crashed'),
});
const arbChange = fc.tuple(
  fc.integer({ min: 1, max: 1_010 }),
  fc.option(arbFields, { nil: undefined }),
);

describe('ReplicaGroup', () => {
  it.each([
    { name: 'few replicas', before: 5 },
    { name: 'the number of replicas from which the group keeps its numbers', before: 999 },
    { name: 'more replicas than that', before: 1_005 },
  ])(
    'has the numbers and the order of its replicas after any changes, with $name',
    ({ before }) => {
      fc.assert(
        fc.property(fc.array(arbChange, { maxLength: 30 }), (changes) => {
          const group = new ReplicaGroup();
          for (const sequence of range(1, before)) group.set(sequence, toStored(sequence));
          for (const [sequence, fields] of changes) {
            const known = group.get(sequence);
            if (fields === undefined) group.delete(sequence);
            else if (known === undefined) group.set(sequence, toStored(sequence, fields));
            else group.replace(sequence, known, toStored(sequence, fields));
          }
          const records = readAll(group);
          expect(toValue(group.counts)).toEqual(toValue(countReplicas(group.values())));
          const sorted = records.map(({ sequence }) => Number(sequence)).sort((a, b) => a - b);
          const listed = Array.from(group.values(), ({ value }) => Number(value.sequence));
          expect(listed).toEqual(sorted);
          const after = Array.from(group.values(500), ({ value }) => Number(value.sequence));
          expect(after).toEqual(sorted.filter((sequence) => sequence > 500));
        }),
        { numRuns: 30 },
      );
    },
  );

  it('keeps its numbers while it grows and shrinks across the limit', () => {
    const group = new ReplicaGroup();
    const expectNumbers = (): void =>
      expect(toValue(group.counts)).toEqual(toValue(countReplicas(group.values())));
    for (const sequence of range(1, 1_200)) group.set(sequence, toStored(sequence));
    expectNumbers();
    for (const sequence of range(1, 800)) group.delete(sequence);
    expectNumbers();
    for (const sequence of range(1_201, 2_200)) group.set(sequence, toStored(sequence));
    expectNumbers();
    expect(Array.from(group.values(), ({ value }) => Number(value.sequence))).toEqual(
      range(801, 2_200),
    );
  });

  it.each([
    { fields: {}, counted: ['live', 'staying', 'unplaced'] },
    {
      fields: { reason: 'no node' },
      counted: ['live', 'staying', 'unplaced', 'explainedUnplaced'],
    },
    { fields: { nodeId: 'n1', phase: Phase.RUNNING }, counted: ['live', 'staying'] },
    {
      fields: { nodeId: 'n1', phase: Phase.RUNNING, ready: true },
      counted: ['live', 'staying', 'ready'],
    },
    {
      fields: { nodeId: 'n1', phase: Phase.RUNNING, reason: 'crashed' },
      counted: ['live', 'staying', 'explainedUnready'],
    },
    { fields: { nodeId: 'n1', phase: Phase.RUNNING, desiredRunning: false }, counted: ['live'] },
    { fields: { nodeId: 'n1', phase: Phase.RUNNING, lost: true }, counted: [] },
    { fields: { phase: Phase.FAILED }, counted: ['failedWanted', 'failedPresent'] },
    { fields: { phase: Phase.FAILED, lost: true }, counted: ['failedWanted'] },
    { fields: { phase: Phase.FAILED, desiredRunning: false }, counted: ['failedPresent'] },
    { fields: { phase: Phase.SUCCEEDED }, counted: ['succeeded'] },
    { fields: { phase: Phase.SUCCEEDED, desiredRunning: false }, counted: [] },
    { fields: { phase: Phase.STOPPED }, counted: [] },
  ])('counts a replica with the fields $fields as $counted', ({ fields, counted }) => {
    const record = toStored(7, { version: 2, desiredRunning: true, ...fields });
    const { total, byVersion } = countReplicas([record]);
    const { records: _records, ...counts } = byVersion.get(2) as unknown as Record<string, unknown>;
    const isCounted = (value: unknown): boolean =>
      typeof value === 'number' ? value === 1 : (value as { first?: number }).first === 7;
    expect(total).toBe(1);
    expect(Object.keys(counts).filter((key) => isCounted(counts[key]))).toEqual(counted);
  });
});
