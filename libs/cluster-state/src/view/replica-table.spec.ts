import fc from 'fast-check';
import { createReplicaRecord } from '../records/replicas.js';
import { toReplicaKeyId } from '../records/records.js';
import type { Stored } from './record-change.js';
import { ReplicaTable } from './replica-table.js';

/** A replica whose key or id may not follow from its workload and sequence number. */
const arbChange = fc
  .record({
    uid: fc.constantFrom('a', 'b'),
    sequence: fc.bigInt({ min: 1n, max: 3n }),
    keySequence: fc.bigInt({ min: 1n, max: 3n }),
    isIrregular: fc.boolean(),
    hasOtherId: fc.boolean(),
    isDeletion: fc.boolean(),
  })
  .map(({ uid, sequence, keySequence, isIrregular, hasOtherId, isDeletion }) => ({
    key: toReplicaKeyId(uid, isIrregular ? keySequence : sequence),
    value: isDeletion
      ? undefined
      : createReplicaRecord({ id: hasOtherId ? 'other' : `${uid}-${sequence}`, uid, sequence }),
  }));

describe('ReplicaTable', () => {
  it('exchanges records as a map by key does, whatever their ids and keys', () => {
    fc.assert(
      fc.property(fc.array(arbChange, { maxLength: 30 }), (changes) => {
        const table = new ReplicaTable();
        const expected = new Map<string, Stored<ReturnType<typeof createReplicaRecord>>>();
        for (const [index, { key, value }] of changes.entries()) {
          const after = value && { value, revision: BigInt(index) };
          expect(table.exchange(key, after)).toBe(expected.get(key));
          if (after === undefined) expected.delete(key);
          else expected.set(key, after);
          expect(table.size).toBe(expected.size);
        }
        expect(new Map(table)).toEqual(expected);
        for (const uid of ['a', 'b']) {
          const own = [...expected.values()].filter(({ value }) => value.uid === uid);
          const sorted = own.map(({ value }) => value.sequence).sort((a, b) => Number(a - b));
          const list = (after?: number): readonly bigint[] =>
            Array.from(table.ofWorkloadInOrder(uid, after), ({ value }) => value.sequence);
          expect(list()).toEqual(sorted);
          expect(list(1)).toEqual(sorted.filter((sequence) => sequence > 1n));
          expect(table.countsOf(uid).total).toBe(own.length);
        }
      }),
    );
  });
});
