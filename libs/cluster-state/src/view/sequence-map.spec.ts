import fc from 'fast-check';
import { SequenceMap } from './sequence-map.js';

/** One change: a value sets the key, undefined deletes the key. */
const arbChanges = fc.array(
  fc.record({
    key: fc.oneof(fc.integer({ min: 0, max: 60 }), fc.maxSafeInteger()),
    value: fc.option(fc.record({ number: fc.integer() }), { nil: undefined, freq: 2 }),
  }),
  { maxLength: 150 },
);

interface Item {
  readonly number: number;
}

const sortedValues = (map: ReadonlyMap<number, Item>): readonly Item[] =>
  [...map].sort(([a], [b]) => a - b).map(([, value]) => value);

describe('SequenceMap', () => {
  it('has what a Map has after the same changes, in ascending order of the keys', () => {
    fc.assert(
      fc.property(arbChanges, (changes) => {
        const map = new SequenceMap<Item>();
        const expected = new Map<number, Item>();
        for (const { key, value } of changes) {
          expect(map.get(key)).toBe(expected.get(key));
          if (value === undefined) expect(map.delete(key)).toBe(expected.delete(key));
          else {
            map.set(key, value);
            expected.set(key, value);
          }
          expect(map.get(key)).toBe(value);
          expect(map.size).toBe(expected.size);
        }
        expect([...map.values()]).toEqual(sortedValues(expected));
      }),
    );
  });

  it('follows changes during an iteration: no value twice, and none left out that stays', () => {
    fc.assert(
      fc.property(arbChanges, fc.integer({ min: 1, max: 40 }), (changes, perStep) => {
        const map = new SequenceMap<Item>();
        const initial = Array.from({ length: 60 }, (_, key) => key);
        for (const key of initial) map.set(key, { number: key });
        const deleted = new Set<number>();
        const seen: number[] = [];
        let next = 0;
        for (const value of map.values()) {
          expect(map.get(value.number)).toBe(value);
          seen.push(value.number);
          for (const change of changes.slice(next, next + perStep)) {
            if (change.value === undefined) map.delete(change.key);
            else map.set(change.key, { number: change.key });
            if (change.value === undefined) deleted.add(change.key);
          }
          next += perStep;
        }
        expect(seen).toEqual([...new Set(seen)].sort((a, b) => a - b));
        const missed = initial.filter((key) => !seen.includes(key) && !deleted.has(key));
        expect(missed).toEqual([]);
      }),
    );
  });

  it('stays at its end once an iteration has ended', () => {
    const map = new SequenceMap<Item>().set(1, { number: 1 });
    const values = map.values();
    expect([...values]).toEqual([{ number: 1 }]);
    map.set(2, { number: 2 });
    expect(values.next()).toEqual({ done: true, value: undefined });
  });
});
