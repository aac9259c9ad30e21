import { describeHandover, findOverlaps, readSpans } from './exclusive-spans.js';

describe('readSpans', () => {
  it('returns the first and last heartbeat of each replica, and skips an incomplete line', () => {
    expect(readSpans('a 10\nb 40\na 20\nb 50\nb 6')).toEqual([
      { id: 'a', fromMs: 10, toMs: 20 },
      { id: 'b', fromMs: 40, toMs: 50 },
    ]);
  });
});

describe('findOverlaps', () => {
  it.each([
    { name: 'one after the other', text: 'a 10\na 20\nb 21\nb 30\n', overlaps: [] },
    {
      name: 'two at the same time',
      text: 'a 10\nb 15\na 20\nb 30\n',
      overlaps: ['a and b ran together for 5 ms'],
    },
    {
      name: 'a third that returns while the second runs',
      text: 'a 10\na 20\nb 30\nc 35\nb 37\n',
      overlaps: ['b and c ran together for 2 ms'],
    },
  ])('finds the overlaps of replicas: $name', ({ text, overlaps }) => {
    expect(findOverlaps(readSpans(text))).toEqual(overlaps);
  });
});

describe('describeHandover', () => {
  it.each([
    { text: 'a 1000\na 6500\nb 9000\n', shown: 'a ended at 5.5 s, b began at 8.0 s' },
    { text: 'a 1000\na 6500\n', shown: 'a ended at 5.5 s, none began' },
  ])('shows when a replica ended and the next one began: $shown', ({ text, shown }) => {
    expect(describeHandover(readSpans(text), 'a', 1_000)).toBe(`after the separation, ${shown}`);
  });
});
