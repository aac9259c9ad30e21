import fc from 'fast-check';
import { findWriteFaults, type Acknowledgement } from './write-record.js';

/** The answers of `count` writes that set `v1`, `v2`, … */
const answers = (count: number): readonly Acknowledgement[] =>
  Array.from({ length: count }, (_, index) => ({
    generation: BigInt(index + 1),
    value: `v${index + 1}`,
  }));
const record = (acknowledged: readonly Acknowledgement[], unknown = 0) => ({
  name: 'own-1',
  acknowledged,
  unknown,
});

describe('findWriteFaults', () => {
  it('finds no fault when the last write is in the state, in any order of the answers', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 20 }).chain((count) =>
          fc.record({
            final: fc.constant({ generation: BigInt(count), value: `v${count}` }),
            acknowledged: fc.shuffledSubarray([...answers(count)], { minLength: count }),
          }),
        ),
        ({ acknowledged, final }) => {
          expect(findWriteFaults(record(acknowledged), final)).toEqual({ lost: [], twice: [] });
        },
      ),
    );
  });

  it.each([
    {
      name: 'a workload that is gone',
      record: record(answers(2)),
      final: undefined,
      lost: ['own-1 does not exist after 2 writes'],
      twice: [],
    },
    {
      name: 'a state older than an answer',
      record: record(answers(3)),
      final: { generation: 2n, value: 'v2' },
      lost: ['own-1 has generation 2 after an answer with 3'],
      twice: [],
    },
    {
      name: 'another value at the generation of the last answer',
      record: record(answers(3)),
      final: { generation: 3n, value: 'x' },
      lost: ['own-1 has the value x; the last write set v3'],
      twice: [],
    },
    {
      name: 'two answers with one generation',
      record: record([...answers(2), { generation: 2n, value: 'x' }]),
      final: { generation: 2n, value: 'x' },
      lost: ['own-1: two writes were answered with generation 2, one is x'],
      twice: [],
    },
    {
      name: 'more changes than writes',
      record: record(answers(2)),
      final: { generation: 3n, value: 'v2' },
      lost: [],
      twice: ['own-1 has generation 3 after 2 acknowledged and 0 unknown writes'],
    },
  ])('finds $name', ({ record: given, final, lost, twice }) => {
    expect(findWriteFaults(given, final)).toEqual({ lost, twice });
  });

  it('accepts one more change for each write with an unknown result', () => {
    const final = { generation: 4n, value: 'x' };
    expect(findWriteFaults(record(answers(2), 2), final)).toEqual({ lost: [], twice: [] });
    expect(findWriteFaults(record(answers(2), 1), final).twice).toHaveLength(1);
  });
});
