import { getHeapStatistics, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import fc from 'fast-check';
import { TransientMap, TransientSet } from './transient.js';

/** Few keys, so that many operations meet a known one. */
const anyKey = fc.integer({ min: 0, max: 12 });
const anyOperations = fc.array(
  fc.oneof(
    {
      weight: 12,
      arbitrary: fc.record({ kind: fc.constant('set' as const), key: anyKey, value: fc.integer() }),
    },
    { weight: 8, arbitrary: fc.record({ kind: fc.constant('delete' as const), key: anyKey }) },
    { weight: 1, arbitrary: fc.constant({ kind: 'clear' as const }) },
  ),
  { maxLength: 300 },
);

describe('TransientMap', () => {
  it('has the entries of a Map, in the same order', () => {
    fc.assert(
      fc.property(anyOperations, (operations) => {
        const map = new TransientMap<number, number>();
        const model = new Map<number, number>();
        for (const operation of operations) {
          if (operation.kind === 'clear') [map, model].forEach((each) => each.clear());
          else if (operation.kind === 'delete')
            expect(map.delete(operation.key)).toBe(model.delete(operation.key));
          else for (const each of [map, model]) each.set(operation.key, operation.value);
          expect([...map]).toEqual([...model]);
          expect([...map.keys()]).toEqual([...model.keys()]);
          expect([...map.values()]).toEqual([...model.values()]);
          expect(map.size).toBe(model.size);
          for (let key = 0; key <= 12; key += 1) {
            expect(map.get(key)).toBe(model.get(key));
            expect(map.has(key)).toBe(model.has(key));
          }
        }
      }),
    );
  });

  it('shows every entry while each is deleted as soon as it is read', () => {
    const map = new TransientMap<number, string>();
    for (const key of [1, 2, 3, 4]) map.set(key, `value ${key}`);
    const seen: number[] = [];
    for (const key of map.keys()) {
      seen.push(key);
      map.delete(key);
    }
    expect(seen).toEqual([1, 2, 3, 4]);
    expect(map.size).toBe(0);
  });
});

/** Collects the young generation. Objects that outlive two such collections become old. */
function collectYoung(): void {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as (options: { type: 'minor' }) => void;
  collect({ type: 'minor' });
}

/**
 * Passes 4,000 values of 2 kB through a map that is in the old generation and has at most 11 of
 * them at a time. Returns by how many MB the heap has grown after two collections of the young
 * generation.
 */
function measureKept(map: Map<number, unknown> | TransientMap<number, unknown>): number {
  collectYoung();
  collectYoung();
  const before = getHeapStatistics().used_heap_size;
  for (let key = 0; key < 4_000; key += 1) {
    map.set(
      key,
      Array.from({ length: 256 }, () => key),
    );
    map.delete(key - 10);
  }
  collectYoung();
  collectYoung();
  return (getHeapStatistics().used_heap_size - before) / 1e6;
}

/** Something else in the process may start a collection of the old generation, or need memory. */
const REPEATS = [1, 2, 3];

describe('values that have left a map', () => {
  it('stay in memory with a Map, which is why TransientMap is needed', () => {
    const kept = REPEATS.map(() => measureKept(new Map()));
    expect(Math.max(...kept)).toBeGreaterThan(2);
  });

  it('leave the memory with a TransientMap', () => {
    const kept = REPEATS.map(() => measureKept(new TransientMap()));
    expect(Math.min(...kept)).toBeLessThan(2);
  });
});

describe('TransientSet', () => {
  it('has the values of a Set, in the same order', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.boolean(), anyKey), { maxLength: 300 }), (operations) => {
        const set = new TransientSet<number>();
        const model = new Set<number>();
        for (const [adds, value] of operations) {
          if (adds) [set, model].forEach((each) => each.add(value));
          else expect(set.delete(value)).toBe(model.delete(value));
          expect([...set]).toEqual([...model]);
          expect(set.size).toBe(model.size);
          for (let each = 0; each <= 12; each += 1) expect(set.has(each)).toBe(model.has(each));
        }
      }),
    );
  });
});
