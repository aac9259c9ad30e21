import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { LogEntrySchema, OutputStream, encodeLogBatch } from '@cloudless/api';
import { LogCursor } from './log-cursor.js';

const aLine = (sequence: bigint, more: MessageInitShape<typeof LogEntrySchema> = {}) =>
  create(LogEntrySchema, { containerId: 'c', sequence, ...more });

const aBatch = (first: bigint, last: bigint) => {
  const lines = Array.from({ length: Number(last - first) + 1 }, (_, index) => ({
    sequence: first + BigInt(index),
    timeMs: 0,
    stream: OutputStream.STDOUT,
    text: new Uint8Array(),
    partial: false,
  }));
  const batch = encodeLogBatch(lines) as Uint8Array<ArrayBuffer>;
  return aLine(first, { lastSequence: last, batch });
};
const sequencesOf = (entries: ReturnType<LogCursor['advance']>) =>
  entries.map(({ sequence, lastSequence }) => lastSequence ?? sequence);

describe('LogCursor', () => {
  it('drops the lines of a container that were received before', () => {
    const cursor = new LogCursor([{ containerId: 'c', sequence: 2n }]);
    expect(sequencesOf(cursor.advance(aLine(2n)))).toEqual([]);
    expect(sequencesOf(cursor.advance(aLine(3n)))).toEqual([3n]);
    expect(sequencesOf(cursor.advance(aLine(1n, { containerId: 'd' })))).toEqual([1n]);
    // An older line does not move the position back.
    expect(sequencesOf(cursor.advance(aLine(1n)))).toEqual([]);
    expect(sequencesOf(cursor.advance(aLine(3n)))).toEqual([]);
  });

  it('returns only the new lines of a batch that was received in part', () => {
    const cursor = new LogCursor([{ containerId: 'c', sequence: 2n }]);
    expect(sequencesOf(cursor.advance(aBatch(1n, 4n)))).toEqual([3n, 4n]);
    expect(sequencesOf(cursor.advance(aBatch(1n, 4n)))).toEqual([]);
    expect(sequencesOf(cursor.advance(aBatch(5n, 6n)))).toEqual([6n]);
  });

  it('returns the positions after bookmarks and skipped lines as positions to resume at', () => {
    const cursor = new LogCursor();
    cursor.advance(aLine(0n, { position: 7n }));
    cursor.advance(
      aLine(0n, { containerId: 'd', skipped: { firstSequence: 1n, lastSequence: 9n } }),
    );
    expect(cursor.toPositions()).toMatchObject([
      { containerId: 'c', sequence: 7n },
      { containerId: 'd', sequence: 9n },
    ]);
  });
});
