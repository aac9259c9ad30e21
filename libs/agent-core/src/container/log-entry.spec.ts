import { decodeLines, OutputStream } from '@cloudless/api';
import type { LogLine } from '@cloudless/runtime';
import { toLogEntries, toLogEntry } from './log-entry.js';

const owner = { containerId: 'c1', replicaId: 'web-1' };
const aLine = (
  sequence: number,
  text: string | Uint8Array,
  fields: Partial<LogLine> = {},
): LogLine => ({
  ...{
    sequence: BigInt(sequence),
    stream: 'stdout',
    timeMs: 1_700_000_000_000 + sequence,
    partial: false,
  },
  text: typeof text === 'string' ? new TextEncoder().encode(text) : text,
  ...fields,
});
const LINES = [
  aLine(1, 'plain'),
  aLine(2, 'grün', { stream: 'stderr' }),
  aLine(3, ''),
  aLine(4, Uint8Array.of(104, 0xff, 105)),
  aLine(5, 'goes on', { partial: true }),
];

describe('toLogEntries', () => {
  it('creates one entry per line when the batch size is 0', () => {
    expect(toLogEntries({ lines: LINES }, owner, 0, 0)).toEqual(
      LINES.map((line) => toLogEntry(line, owner)),
    );
  });

  it.each([10, 60, 100_000])(
    'keeps every line when batches have about %d bytes',
    (maxBatchBytes) => {
      const entries = toLogEntries({ lines: LINES }, owner, maxBatchBytes, 0);
      expect(entries.flatMap(decodeLines)).toEqual(LINES.map((line) => toLogEntry(line, owner)));
      for (const entry of entries) {
        const lines = decodeLines(entry);
        expect(entry.sequence).toBe(lines[0]?.sequence);
        if (entry.batch !== undefined) expect(entry.lastSequence).toBe(lines.at(-1)?.sequence);
      }
    },
  );

  it('creates batches of about the requested size', () => {
    const lines = Array.from({ length: 1_000 }, (_, index) => aLine(index + 1, 'x'.repeat(100)));
    const sizes = toLogEntries({ lines }, owner, 10_000, 0).map(({ batch }) => batch?.length ?? 0);
    expect(sizes.length).toBeGreaterThan(10);
    for (const size of sizes) expect(size).toBeLessThan(12_000);
  });

  it('keeps the raw bytes of a line that is not UTF-8', () => {
    const [entry] = toLogEntries({ lines: LINES }, owner, 100_000, 0).flatMap(decodeLines).slice(3);
    expect(entry).toMatchObject({
      line: 'h\ufffdi',
      raw: Uint8Array.of(104, 0xff, 105),
      stream: OutputStream.STDOUT,
    });
  });

  it('puts a marker for missing lines before the line that follows them', () => {
    const skipped = { firstSequence: 5n, lastSequence: 9n, bytes: 70 };
    const [marker, line] = toLogEntries({ lines: [aLine(10, 'a')], skipped }, owner, 0, 1_000);
    expect(marker).toMatchObject({
      ...owner,
      sequence: 0n,
      skipped: { firstSequence: 5n, lastSequence: 9n, bytes: 70n },
    });
    expect(line).toMatchObject({ sequence: 10n, line: 'a' });
    // the time of the marker keeps it before its line when entries are sorted by time
    expect(marker?.time).toEqual(line?.time);
    const [unknown] = toLogEntries(
      { lines: [], skipped: { firstSequence: 5n, lastSequence: 9n } },
      owner,
      0,
      1_000,
    );
    expect(unknown?.skipped?.bytes).toBeUndefined();
  });
});
