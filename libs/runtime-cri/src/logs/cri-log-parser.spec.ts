import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { MAX_LINE_BYTES, type LogLine } from '@cloudless/runtime';
import { CriLogParser } from './cri-log-parser.js';

const TIME = '2016-10-06T00:17:09.669794202Z';
const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

function parse(chunks: readonly Uint8Array[], first = 1n): readonly LogLine[] {
  const parser = new CriLogParser(first);
  return chunks.flatMap((chunk) => parser.feed(chunk));
}

/** Generates texts of any bytes except the line feed. */
const arbText = fc
  .uint8Array({ maxLength: 40 })
  .map((each) => each.map((byte) => (byte === 10 ? 11 : byte)));
const arbEntry = fc.record({
  stream: fc.constantFrom('stdout', 'stderr'),
  tag: fc.constantFrom('P', 'F'),
  text: arbText,
});

function encode(
  entries: readonly { readonly stream: string; readonly tag: string; readonly text: Uint8Array }[],
): Buffer {
  return Buffer.concat(
    entries.flatMap(({ stream, tag, text }) => [
      bytes(`${TIME} ${stream} ${tag} `),
      text,
      bytes('\n'),
    ]),
  );
}

/** Cuts the bytes into chunks at these positions, modulo the length. */
function cut(whole: Uint8Array, cuts: readonly number[]): readonly Uint8Array[] {
  const boundaries = [
    0,
    ...cuts.map((position) => position % (whole.length + 1)),
    whole.length,
  ].sort((a, b) => a - b);
  return boundaries.slice(1).map((end, index) => whole.subarray(boundaries[index], end));
}

describe('CriLogParser.feed', () => {
  it.each([
    {
      name: 'a complete entry',
      text: `${TIME} stdout F hello world\n`,
      lines: [['stdout', 'hello world', false]],
    },
    {
      name: 'an entry with an empty text',
      text: `${TIME} stderr F \n`,
      lines: [['stderr', '', false]],
    },
    {
      name: 'a partial line and the line that continues it',
      text: `${TIME} stdout P a\n${TIME} stdout F b\n`,
      lines: [
        ['stdout', 'a', true],
        ['stdout', 'b', false],
      ],
    },
    {
      name: 'an entry with several tags',
      text: `${TIME} stdout F:new x\n`,
      lines: [['stdout', 'x', false]],
    },
    {
      name: 'an entry with the time of another time zone',
      text: '2016-10-06T02:17:09.669794202+02:00 stdout F x\n',
      lines: [['stdout', 'x', false]],
    },
    { name: 'no line from an entry without a line feed', text: `${TIME} stdout F x`, lines: [] },
    {
      name: 'no line from an entry that was cut off, but the entry after it',
      text: `${TIME} std\n${TIME} stdout F x\n`,
      lines: [['stdout', 'x', false]],
    },
    {
      name: 'no line from text that is not an entry',
      text: `${'z'.repeat(1_000)}\nhello\n\n${TIME} stdin F x\n${TIME} stdout Q x\n`,
      lines: [],
    },
  ])('returns $name', ({ text, lines }) => {
    const found = parse([bytes(text)]);
    expect(
      found.map((line) => [line.stream, new TextDecoder().decode(line.text), line.partial]),
    ).toEqual(lines);
    for (const { timeMs } of found) expect(timeMs).toBe(Date.UTC(2016, 9, 6, 0, 17, 9, 669));
  });

  it('splits a long entry into lines of MAX_LINE_BYTES with consecutive numbers', () => {
    const text = 'x'.repeat(2 * MAX_LINE_BYTES + 5);
    const lines = parse([bytes(`${TIME} stdout F ${text}\n${TIME} stdout F y\n`)], 7n);
    expect(
      lines.map(({ sequence, text: { length }, partial }) => [sequence, length, partial]),
    ).toEqual([
      [7n, MAX_LINE_BYTES, true],
      [8n, MAX_LINE_BYTES, true],
      [9n, 5, false],
      [10n, 1, false],
    ]);
  });

  it('returns all but one full line of an endless entry', () => {
    const parser = new CriLogParser(1n);
    let lineCount = parser.feed(bytes(`${TIME} stdout F `)).length;
    for (let chunk = 0; chunk < 64; chunk += 1)
      lineCount += parser.feed(new Uint8Array(MAX_LINE_BYTES).fill(120)).length;
    expect(lineCount).toBe(63);
  });

  it('returns the same lines however the log is cut into chunks', () => {
    fc.assert(
      fc.property(
        fc.array(arbEntry, { maxLength: 8 }),
        fc.array(fc.nat(), { maxLength: 8 }),
        (entries, cuts) => {
          const whole = encode(entries);
          expect(parse(cut(whole, cuts))).toEqual(parse([whole]));
          expect(parse([whole])).toHaveLength(entries.length);
        },
      ),
    );
  });

  it('returns the same lines of a long entry however the log is cut into chunks', () => {
    const whole = Buffer.concat([
      bytes(`${TIME} stderr P `),
      Buffer.alloc(3 * MAX_LINE_BYTES, 97),
      bytes(`\n${TIME} stderr F z\n`),
    ]);
    fc.assert(
      fc.property(fc.array(fc.nat(), { maxLength: 6 }), (cuts) =>
        expect(parse(cut(whole, cuts))).toEqual(parse([whole])),
      ),
      { numRuns: 50 },
    );
  });

  it('parses any bytes without an exception and numbers the lines without gaps', () => {
    fc.assert(
      fc.property(
        fc.array(
          fc.oneof(fc.uint8Array({ maxLength: 300 }), fc.constant(bytes(`${TIME} stdout F x\n`))),
        ),
        (chunks) => {
          const lines = parse(chunks);
          expect(lines.map(({ sequence }) => sequence)).toEqual(
            lines.map((_, index) => BigInt(index + 1)),
          );
        },
      ),
    );
  });
});
