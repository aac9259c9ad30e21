import fc from 'fast-check';
import { compareKeys } from '@cloudless/state-store';
import { AbsentKeys } from './absent-keys.js';

/** A table of keys that reads and writes as a storage does, and counts what it reads. */
class SearchedTable {
  readonly absentKeys = new AbsentKeys();
  searches = 0;

  constructor(readonly keys = new Set<string>()) {}

  has(key: string): boolean {
    if (this.absentKeys.has(key)) return false;
    this.searches += 1;
    if (this.keys.has(key)) return true;
    this.absentKeys.learn(key, (missed) =>
      [...this.keys].sort(compareKeys).find((each) => compareKeys(each, missed) > 0),
    );
    return false;
  }

  put(key: string): void {
    if (!this.has(key)) this.absentKeys.recordPut(key);
    this.keys.add(key);
  }
}

const aNumber = (value: number): string => String(value).padStart(6, '0');

describe('AbsentKeys', () => {
  it('saves the search of keys that are added in order, of several kinds in turns', () => {
    const table = new SearchedTable(new Set(['a/1', 'b/000500', 'c']));
    for (let index = 0; index < 400; index += 1) {
      if (index % 10 < 5) table.put(`a/${aNumber(index)}`);
      else table.put(`b/${aNumber(index)}`);
    }
    expect(table.searches).toBeLessThan(10);
  });

  it('keeps the 64 ranges that were used last', () => {
    const table = new SearchedTable();
    const keyOf = (sequence: number, value: number) => `${aNumber(sequence)}/${aNumber(value)}`;
    for (let sequence = 0; sequence < 200; sequence += 1) {
      for (const value of [1, 2]) table.put(keyOf(sequence, value));
      if (sequence % 50 === 0) expect(table.absentKeys.has(keyOf(0, 3))).toBe(true);
    }
    const kept = Array.from({ length: 200 }, (_, sequence) => sequence).filter((sequence) =>
      table.absentKeys.has(keyOf(sequence, 3)),
    );
    expect(kept).toEqual([0, ...Array.from({ length: 63 }, (_, index) => 137 + index)]);
  });

  it('never calls a key absent that has an entry', () => {
    const arbKey = fc.oneof(
      fc.integer({ min: 0, max: 30 }).map((value) => `k${aNumber(value)}`),
      fc.string({ unit: 'binary', maxLength: 3 }),
      fc.constantFrom('\uffff', '\u{1f511}', '\u{1f512}', 'k\u{1f512}'),
    );
    const arbStep = fc.record({ key: arbKey, kind: fc.constantFrom('has', 'put', 'delete') });
    fc.assert(
      fc.property(fc.array(arbStep, { maxLength: 100 }), (steps) => {
        const table = new SearchedTable();
        for (const { key, kind } of steps) {
          if (kind === 'put') table.put(key);
          else if (kind === 'delete') table.keys.delete(key);
          expect(table.has(key)).toBe(table.keys.has(key));
        }
        for (const key of table.keys) expect(table.absentKeys.has(key)).toBe(false);
      }),
      { numRuns: 500 },
    );
  });
});
