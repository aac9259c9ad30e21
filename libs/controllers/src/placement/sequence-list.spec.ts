import fc from 'fast-check';
import { SequenceList, type SequenceEntry } from './sequence-list.js';

describe('SequenceList', () => {
  it('lists ids as a stable sort by sequence number does, after any additions and removals', () => {
    const arbChange = fc.record({
      sequence: fc.integer({ min: 0, max: 40 }),
      count: fc.integer({ min: 1, max: 700 }),
      isAscending: fc.boolean(),
      isRemoval: fc.boolean(),
    });
    fc.assert(
      fc.property(fc.array(arbChange, { maxLength: 8 }), (changes) => {
        const list = new SequenceList();
        let expected: SequenceEntry[] = [];
        let nextId = 0;
        for (const { sequence, count, isAscending, isRemoval } of changes) {
          const removed = isRemoval ? expected.slice(sequence, sequence + count) : [];
          for (const entry of removed) expect(list.delete(entry.sequence, entry.id)).toBe(true);
          expected = expected.filter((entry) => !removed.includes(entry));
          for (let index = 0; !isRemoval && index < count; index += 1) {
            const entry = { sequence: sequence + (isAscending ? index : 0), id: `r${nextId++}` };
            list.add(entry.sequence, entry.id);
            expected.push(entry);
          }
          expected.sort((a, b) => a.sequence - b.sequence);
          expect([...list]).toEqual(expected);
          expect(list.size).toBe(expected.length);
          expect(expected.every(({ sequence: number, id }) => list.has(number, id))).toBe(true);
        }
      }),
      { numRuns: 60 },
    );
  });

  it('does not contain an id under another number, and removes nothing then', () => {
    const list = new SequenceList();
    list.add(1, 'a');
    expect(list.has(2, 'a')).toBe(false);
    expect(list.delete(2, 'a')).toBe(false);
    expect(list.delete(1, 'b')).toBe(false);
    expect([...list]).toEqual([{ sequence: 1, id: 'a' }]);
  });
});
