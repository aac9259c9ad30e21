import {
  addRemovedFiles,
  countBytesBefore,
  encodeRemovedLines,
  parseRemovedLines,
} from './removed-lines.js';

describe('parseRemovedLines', () => {
  it('parses an encoded record', () => {
    const removed = { keptFrom: 9_007_199_254_740_993n, bytes: 12_345 };
    expect(parseRemovedLines(encodeRemovedLines(removed))).toEqual(removed);
  });

  it.each(['', '12', '12 34', 'a 1\n', '12 34\n5 6\n', '99999999999999999999 1\n'])(
    'returns undefined for the text %j',
    (text) => {
      expect(parseRemovedLines(text)).toBeUndefined();
    },
  );
});

describe('countBytesBefore', () => {
  const files = [
    { firstSequence: 11n, bytes: 100 },
    { firstSequence: 21n, bytes: 120 },
    { firstSequence: 31n, bytes: 7 },
  ];

  it.each([
    {
      name: 'adds the sizes of removed and kept files',
      first: 31n,
      removed: { keptFrom: 11n, bytes: 90 },
      bytes: 310,
    },
    {
      name: 'returns the removed bytes for the oldest kept file',
      first: 11n,
      removed: { keptFrom: 11n, bytes: 90 },
      bytes: 90,
    },
    {
      name: 'counts a file once that is recorded and not yet removed',
      first: 31n,
      removed: { keptFrom: 21n, bytes: 190 },
      bytes: 310,
    },
    {
      name: 'returns undefined when files were removed without a record',
      first: 31n,
      removed: undefined,
      bytes: undefined,
    },
    {
      name: 'returns undefined for a file that was removed after the listing',
      first: 11n,
      removed: { keptFrom: 21n, bytes: 190 },
      bytes: undefined,
    },
    {
      name: 'returns undefined when the record is newer than the listing',
      first: 31n,
      removed: { keptFrom: 25n, bytes: 310 },
      bytes: undefined,
    },
  ])('$name', ({ first, removed, bytes }) => {
    expect(countBytesBefore(first, files, removed)).toBe(bytes);
  });

  it('returns 0 when nothing was removed and the log begins with the file', () => {
    expect(countBytesBefore(1n, [{ firstSequence: 1n, bytes: 5 }], undefined)).toBe(0);
  });
});

describe('addRemovedFiles', () => {
  const file = (firstSequence: bigint, bytes: number) => ({ firstSequence, bytes });
  const sizeOf = ({ bytes }: { readonly bytes: number }): number => bytes;

  it.each([
    {
      name: 'begins a record with the first removed file',
      removed: undefined,
      files: [file(1n, 5), file(3n, 7)],
      bytes: 12,
    },
    {
      name: 'adds the sizes of more files to a record',
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
      name: 'returns undefined after a removal without a record',
      removed: undefined,
      files: [file(3n, 7)],
      bytes: undefined,
    },
  ])('$name', ({ removed, files, bytes }) => {
    const expected = bytes === undefined ? undefined : { keptFrom: 9n, bytes };
    expect(addRemovedFiles(removed, files, 9n, sizeOf)).toEqual(expected);
  });
});
