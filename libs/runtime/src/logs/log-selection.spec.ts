import fc from 'fast-check';
import type { LogLine } from '../container-runtime.js';
import { LineSelection } from './log-selection.js';

const aLine = (sequence: bigint): LogLine => ({
  sequence,
  ...{ stream: 'stdout', timeMs: 0, partial: false },
  text: new Uint8Array(),
});
const sequencesOf = (lines: readonly LogLine[] = []): readonly bigint[] =>
  lines.map(({ sequence }) => sequence);

describe('LineSelection of a tail', () => {
  /** Selects from lines 1 to `before` and, in a second read, from `later` more lines. */
  const select = (follow: boolean, tailLines: number, before: number, later: number) => {
    const selection = new LineSelection({ follow, tailLines }, 1n, Math.max(0, before - tailLines));
    const lines = Array.from({ length: before + later }, (_, index) => aLine(BigInt(index + 1)));
    return [lines.slice(0, before), lines.slice(before)].flatMap((part) =>
      sequencesOf(selection.select(part)?.lines),
    );
  };
  const count = fc.nat({ max: 20 });

  it('ends with the lines that existed when the lines were counted', () => {
    fc.assert(
      fc.property(count, count, count, (tailLines, before, later) => {
        const expected = Math.min(tailLines, before + later);
        const selected = select(false, tailLines, before, later);
        expect(selected).toHaveLength(expected);
        expect(selected[0]).toBe(
          expected === 0 ? undefined : BigInt(Math.max(0, before - tailLines) + 1),
        );
      }),
    );
  });

  it('continues with later lines when the log is followed', () => {
    fc.assert(
      fc.property(count, count, count, (tailLines, before, later) => {
        const selected = select(true, tailLines, before, later);
        expect(selected).toHaveLength(Math.min(tailLines, before) + later);
      }),
    );
  });
});
