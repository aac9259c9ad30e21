import { jest } from '@jest/globals';
import { existsSync, readFileSync } from 'node:fs';
import { MUSEUM, findingSeed } from './museum.js';
import { FAULTY_RUNTIMES } from './faulty-runtimes.js';
import { toRuntimeRow, toWorldRow } from './museum-table.js';

/** Whole worlds run in each test, however busy the machine is. */
jest.setTimeout(120_000);

/**
 * When the code has changed, random streams have too: so many worlds are tried from the recorded
 * one on.
 */
const MOST_SEEDS = 20;

const root = new URL('../../../../', import.meta.url);

describe('the bug museum', () => {
  it.each(MUSEUM)('finds: $name', async (piece) => {
    const seed = await findingSeed(piece, piece.seed, MOST_SEEDS);
    if (seed !== piece.seed)
      process.stderr.write(
        `${piece.name}: found by seed ${seed}, not by ${piece.seed} any more; see nx run simulation:museum\n`,
      );
  });

  it.each(MUSEUM)('names the checker that is there: $name', ({ checker }) => {
    expect(existsSync(new URL(`libs/simulation/src/${checker}`, root))).toBe(true);
  });

  it('is in docs/museum.md as it is here', () => {
    const rows = readFileSync(new URL('docs/museum.md', root), 'utf8')
      .split('\n')
      .filter(isRow)
      .map(squeezed);
    expect(rows).toEqual(
      [...MUSEUM.map(toWorldRow), ...FAULTY_RUNTIMES.map(toRuntimeRow)].map(squeezed),
    );
  });
});

/** A row of a table below its head. */
function isRow(line: string, index: number, lines: readonly string[]): boolean {
  return (
    line.startsWith('|') && !line.startsWith('| -') && !(lines[index + 1] ?? '').startsWith('| -')
  );
}

/** Without the spaces that line a table up. */
function squeezed(line: string): string {
  return line.replace(/ +/g, ' ').trim();
}
