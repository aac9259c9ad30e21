import fc from 'fast-check';
import { TransientMap, TransientSet } from './transient.js';

/** Few keys, so that many operations meet a known one. */
const anyKey = fc.integer({ min: 0, max: 12 });
const anyOperations = fc.array(
  fc.oneof(
    fc.record({ kind: fc.constant('set' as const), key: anyKey, value: fc.integer() }),
    fc.record({ kind: fc.constant('delete' as const), key: anyKey }),
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

  it('may be changed while its entries are read', () => {
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
          expect(set.has(value)).toBe(adds);
          expect(set.size).toBe(model.size);
        }
      }),
    );
  });
});
