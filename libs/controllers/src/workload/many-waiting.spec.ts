import { create } from '@bufbuild/protobuf';
import fc from 'fast-check';
import { ReplicaStatus_Phase as Phase } from '@cloudless/api';
import {
  ControlRecordSchema,
  EvictionRecordSchema,
  ReplicaRecordSchema,
  WorkloadRecordSchema,
  type EvictionRecord,
  type ReplicaRecord,
} from '@cloudless/api/store';
import { definedFields } from '@cloudless/base';
import { copyReplica } from '@cloudless/cluster-state';
import { ManyWaiting, type CountedWaiting } from './many-waiting.js';

const aReplica = (
  slot: number,
  fields: Partial<Pick<ReplicaRecord, 'version' | 'nodeId' | 'phase' | 'onlyNodeId'>> = {},
): ReplicaRecord =>
  create(ReplicaRecordSchema, {
    ...{ id: `w-${slot}`, uid: 'w', slot, sequence: BigInt(slot + 1), version: 1 },
    ...{ desiredRunning: true, phase: Phase.PENDING },
    ...fields,
  });
const stored = (replicas: readonly ReplicaRecord[]) =>
  replicas.map((value) => ({ value, revision: 1n }));
const placed = { nodeId: 'node-1', phase: Phase.ASSIGNED };

const describeCounts = (counted: CountedWaiting | undefined, slots: number) =>
  counted && {
    count: counted.count,
    version: counted.version,
    otherIds: [...counted.otherIds].sort(),
    slots: Array.from({ length: slots }, (_, slot) => counted.createSlotTest()(slot)),
  };

describe('ManyWaiting', () => {
  it('has the counts of a new count after any changes, also when it begins between changes', () => {
    const arbReplica = fc.option(
      fc.record({
        version: fc.constantFrom(1, 1, 1, 2),
        isPlaced: fc.boolean(),
        isStopped: fc.boolean(),
        isBound: fc.integer({ min: 0, max: 4 }).map((value) => value === 0),
      }),
    );
    const arbChanges = fc.array(fc.tuple(fc.nat(1_500), arbReplica), { maxLength: 30 });
    fc.assert(
      fc.property(arbChanges, fc.nat(30), (changes, seen) => {
        const records = new Map<number, ReplicaRecord>();
        const many = new ManyWaiting(0);
        const applied = changes.map(([slot, fields]) => {
          const before = records.get(slot);
          const after =
            fields === null
              ? undefined
              : copyReplica(
                  aReplica(slot, {
                    version: fields.version,
                    onlyNodeId: fields.isBound ? 'node-9' : '',
                    ...(fields.isPlaced ? placed : {}),
                  }),
                  { desiredRunning: !fields.isStopped },
                );
          if (after === undefined) records.delete(slot);
          else records.set(slot, after);
          return { before, after, all: [...records.values()] };
        });
        // The count begins with the records after the first changes, of which it then gets the last.
        const beginAt = Math.min(seen, applied.length);
        many.begin('w', stored(applied[beginAt - 1]?.all ?? []));
        for (const { before, after } of applied.slice(Math.max(0, beginAt - 1)))
          many.applyChange('w', before, after);
        const fresh = new ManyWaiting(0);
        fresh.begin('w', stored([...records.values()]));
        expect(describeCounts(many.get('w'), 1_600)).toEqual(describeCounts(fresh.get('w'), 1_600));
      }),
    );
  });

  it('begins with the given number of waiting replicas, and ends below half of it', () => {
    const many = new ManyWaiting(4);
    const replicas = [0, 1, 2, 3].map((slot) => aReplica(slot));
    many.begin('w', stored([...replicas.slice(1), aReplica(0, placed)]));
    expect(many.get('w')).toBeUndefined();
    many.begin('w', stored(replicas));
    expect(many.get('w')?.count).toBe(4);
    for (const replica of replicas.slice(0, 2))
      many.applyChange('w', replica, copyReplica(replica, placed));
    expect(many.get('w')?.count).toBe(2);
    many.applyChange('w', aReplica(2), undefined);
    expect(many.get('w')).toBeUndefined();
  });

  it('does not count waiting replicas that share a slot', () => {
    const many = new ManyWaiting(2);
    const shared = copyReplica(aReplica(1), { id: 'w-9', sequence: 9n });
    many.begin('w', stored([aReplica(0), aReplica(1), shared]));
    expect(many.get('w')).toBeUndefined();
  });

  it('ends the count when two waiting replicas share a slot', () => {
    const many = new ManyWaiting(2);
    many.begin('w', stored([aReplica(0), aReplica(1)]));
    expect(many.get('w')?.count).toBe(2);
    const shared = copyReplica(aReplica(1), { id: 'w-9', sequence: 9n });
    many.applyChange('w', undefined, shared);
    expect(many.get('w')).toBeUndefined();
  });

  it('replaces waiting replicas also after a request to move other replicas', () => {
    const many = new ManyWaiting(2);
    many.begin('w', stored([aReplica(0), aReplica(1), aReplica(2, placed)]));
    const workload = create(WorkloadRecordSchema, { uid: 'w', version: 1, generation: 3n });
    const mayReplace = (observedGeneration: bigint, eviction?: EvictionRecord) =>
      many
        .get('w')
        ?.mayReplace(
          workload,
          create(ControlRecordSchema, { observedGeneration, ...definedFields({ eviction }) }),
        );
    const eviction = create(EvictionRecordSchema, { replicaIds: ['w-2'], nodeIds: ['node-1'] });
    expect([mayReplace(3n), mayReplace(3n, eviction)]).toEqual([true, true]);
    expect(mayReplace(2n, eviction)).toBe(false);
  });

  it('names no version while waiting replicas have several', () => {
    const many = new ManyWaiting(2);
    many.begin('w', stored([aReplica(0), aReplica(1), aReplica(2, { version: 2 })]));
    expect(many.get('w')?.version).toBeUndefined();
    many.applyChange('w', aReplica(2, { version: 2 }), undefined);
    expect(many.get('w')?.version).toBe(1);
  });
});
