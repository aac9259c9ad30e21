import fc from 'fast-check';
import { toReplicaId, type ReplicaId } from '@cloudless/base';
import { NO_ENTRY } from './entry-columns.js';
import { hashReplicaId, ReplicaIndex } from './replica-index.js';

/** Adds the ids in order; the entry of an id is its position. */
function anIndexOf(ids: readonly ReplicaId[]): ReplicaIndex {
  const index = new ReplicaIndex(ids);
  ids.forEach((id, entry) => index.add(hashReplicaId(id), entry));
  return index;
}

/** Ids of which several have the same hash. */
const COLLIDING = ['Aa-1', 'BB-1', 'AaAa', 'BBBB', 'AaBB', 'BBAa'].map(toReplicaId);

describe('ReplicaIndex', () => {
  it('finds what a Map finds after any additions and removals', () => {
    const pick = fc.nat(300);
    const steps = fc.array(fc.record({ pick, isRemoval: fc.boolean() }), { maxLength: 600 });
    fc.assert(
      fc.property(steps, (history) => {
        const ids: ReplicaId[] = [];
        const index = new ReplicaIndex(ids);
        const expected = new Map<ReplicaId, number>();
        for (const { pick: number, isRemoval } of history) {
          const id = COLLIDING[number] ?? toReplicaId(`w-${number}`);
          const hash = hashReplicaId(id);
          if (isRemoval) {
            index.remove(id, hash);
            expected.delete(id);
          } else if (!expected.has(id)) {
            const entry = ids.push(id) - 1;
            index.add(hash, entry);
            expected.set(id, entry);
          }
        }
        for (const id of new Set(ids))
          expect(index.find(id, hashReplicaId(id))).toBe(expected.get(id) ?? NO_ENTRY);
        expect(index.size).toBe(expected.size);
      }),
    );
  });

  it('keeps ids with equal hashes apart', () => {
    expect(new Set(COLLIDING.slice(2).map(hashReplicaId)).size).toBe(1);
    const index = anIndexOf(COLLIDING);
    COLLIDING.forEach((id, entry) => expect(index.find(id, hashReplicaId(id))).toBe(entry));
  });

  it('spreads similar ids, so that most are found at once', () => {
    const ids = Array.from({ length: 50_000 }, (_, number) => toReplicaId(`workload-7-${number}`));
    const hashes = ids.map(hashReplicaId);
    expect(new Set(hashes).size).toBe(ids.length);
    const low = new Set(hashes.map((hash) => hash & 0xffff));
    // Random numbers would leave 47 % of these places empty.
    expect(low.size).toBeGreaterThan(0.5 * 0x1_0000);
  });

  it('keeps a copy unchanged when the original changes', () => {
    const ids = Array.from({ length: 100 }, (_, number) => toReplicaId(`w-${number}`));
    const index = anIndexOf(ids);
    const [first = toReplicaId('')] = ids;
    const copy = index.clone([...ids]);
    index.remove(first, hashReplicaId(first));
    expect(index.find(first, hashReplicaId(first))).toBe(NO_ENTRY);
    expect(copy.find(first, hashReplicaId(first))).toBe(0);
  });
});
