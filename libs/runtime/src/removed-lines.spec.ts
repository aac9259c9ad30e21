import {
  addRemovedFiles,
  bytesBefore,
  encodeRemovedLines,
  parseRemovedLines,
} from './removed-lines.js';

describe('the record of removed lines', () => {
  it('is read back as it was written', () => {
    const removed = { keptFrom: 9_007_199_254_740_993n, bytes: 12_345 };
    expect(parseRemovedLines(encodeRemovedLines(removed))).toEqual(removed);
  });

  it.each(['', '12', '12 34', 'a 1\n', '12 34\n5 6\n', '99999999999999999999 1\n'])(
    'is refused when its text is %j',
    (text) => {
      expect(parseRemovedLines(text)).toBeUndefined();
    },
  );
});

describe('the bytes before a file', () => {
  const files = [
    { firstSequence: 11n, bytes: 100 },
    { firstSequence: 21n, bytes: 120 },
    { firstSequence: 31n, bytes: 7 },
  ];

  it.each([
    {
      name: 'count removed and kept files',
      first: 31n,
      removed: { keptFrom: 11n, bytes: 90 },
      bytes: 310,
    },
    {
      name: 'are those removed before the oldest kept file',
      first: 11n,
      removed: { keptFrom: 11n, bytes: 90 },
      bytes: 90,
    },
    {
      name: 'leave out a file that is about to be removed',
      first: 31n,
      removed: { keptFrom: 21n, bytes: 190 },
      bytes: 310,
    },
    {
      name: 'are unknown when old files are gone without a record',
      first: 31n,
      removed: undefined,
      bytes: undefined,
    },
    {
      name: 'are unknown for a file removed since the listing',
      first: 11n,
      removed: { keptFrom: 21n, bytes: 190 },
      bytes: undefined,
    },
    {
      name: 'are unknown when the record is newer than the listing',
      first: 31n,
      removed: { keptFrom: 25n, bytes: 310 },
      bytes: undefined,
    },
  ])('$name', ({ first, removed, bytes }) => {
    expect(bytesBefore(first, files, removed)).toBe(bytes);
  });

  it('are none when nothing was ever removed and the log begins with the file', () => {
    expect(bytesBefore(1n, [{ firstSequence: 1n, bytes: 5 }], undefined)).toBe(0);
  });
});

describe('addRemovedFiles', () => {
  const file = (firstSequence: bigint, bytes: number) => ({ firstSequence, bytes });
  const sizeOf = ({ bytes }: { readonly bytes: number }): number => bytes;

  it.each([
    {
      name: 'begins a record at the first file',
      removed: undefined,
      files: [file(1n, 5), file(3n, 7)],
      bytes: 12,
    },
    {
      name: 'adds to a record',
      removed: { keptFrom: 3n, bytes: 5 },
      files: [file(3n, 7)],
      bytes: 12,
    },
    {
      name: 'does not count a recorded file twice',
      removed: { keptFrom: 3n, bytes: 5 },
      files: [file(1n, 5), file(3n, 7)],
      bytes: 12,
    },
    {
      name: 'knows no size after a removal without a record',
      removed: undefined,
      files: [file(3n, 7)],
      bytes: undefined,
    },
  ])('$name', ({ removed, files, bytes }) => {
    const expected = bytes === undefined ? undefined : { keptFrom: 9n, bytes };
    expect(addRemovedFiles(removed, files, 9n, sizeOf)).toEqual(expected);
  });
});
