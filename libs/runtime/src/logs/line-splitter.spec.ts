import fc from 'fast-check';
import { LineSplitter, MAX_LINE_BYTES, type SplitLine } from '../index.js';

const decode = (bytes: Uint8Array): string => Buffer.from(bytes).toString('latin1');
const show = (lines: readonly SplitLine[]): readonly string[] =>
  lines.map(({ text, partial }) => decode(text) + (partial ? '…' : ''));

function split(chunks: readonly Uint8Array[]): readonly SplitLine[] {
  const splitter = new LineSplitter();
  const lines = chunks.flatMap((chunk) => splitter.feed(chunk));
  const last = splitter.flush();
  return last === undefined ? lines : [...lines, last];
}

describe('LineSplitter', () => {
  it.each([
    { name: 'complete lines', chunks: ['a\nb\n'], lines: ['a', 'b'] },
    { name: 'a line over several chunks', chunks: ['a', 'b', 'c\nd'], lines: ['abc', 'd'] },
    { name: 'empty lines', chunks: ['\n\n', '\n'], lines: ['', '', ''] },
    { name: 'a line with a carriage return, which is kept', chunks: ['a\r\n'], lines: ['a\r'] },
    { name: 'an empty chunk into no lines', chunks: [''], lines: [] },
  ])('splits $name', ({ chunks, lines }) => {
    expect(show(split(chunks.map((chunk) => Buffer.from(chunk))))).toEqual(lines);
  });

  it('keeps all bytes in entries of at most 16 KiB, whatever the chunks', () => {
    const anyPart = fc.oneof(
      fc.uint8Array({ maxLength: 40 }),
      fc.constant(Uint8Array.of(10)),
      fc.nat({ max: 3 * MAX_LINE_BYTES }).map((length) => new Uint8Array(length).fill(0x61)),
    );
    fc.assert(
      fc.property(
        fc.array(anyPart, { maxLength: 12 }),
        fc.array(fc.nat({ max: 100_000 }), { maxLength: 6 }),
        (parts, cuts) => {
          const whole = Buffer.concat(parts);
          const bounds = [
            0,
            ...cuts.map((cut) => cut % (whole.length + 1)).sort((a, b) => a - b),
            whole.length,
          ];
          const chunks = bounds
            .slice(1)
            .map((end, index) => whole.subarray(bounds[index] ?? 0, end));
          const lines = split(chunks);
          const text = lines.map((line) => decode(line.text) + (line.partial ? '' : '\n')).join('');
          const expected = decode(whole);
          expect(text).toBe(
            expected === '' || expected.endsWith('\n') ? expected : `${expected}\n`,
          );
          expect(
            lines.every(
              (line) =>
                line.text.length <= MAX_LINE_BYTES &&
                (!line.partial || line.text.length === MAX_LINE_BYTES),
            ),
          ).toBe(true);
        },
      ),
    );
  });

  it('continues with the pending bytes of another splitter', () => {
    const first = new LineSplitter();
    first.feed(Buffer.from('beg'));
    expect(show(new LineSplitter(first.pending).feed(Buffer.from('un\n')))).toEqual(['begun']);
  });

  it('copies the chunk, so that the caller can reuse the buffer', () => {
    const splitter = new LineSplitter();
    const buffer = Buffer.from('abc');
    splitter.feed(buffer);
    buffer.fill('x');
    expect(show(splitter.feed(Buffer.from('\n')))).toEqual(['abc']);
  });
});
