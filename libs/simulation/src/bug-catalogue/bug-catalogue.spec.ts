import { existsSync, readFileSync } from 'node:fs';
import { jest } from '@jest/globals';
import { BUG_CATALOGUE, findSeed } from './bug-catalogue.js';
import { FAULTY_RUNTIMES } from './faulty-runtimes.js';
import { toRuntimeRow, toWorldRow } from './catalogue-table.js';

/** Each test runs whole worlds, which takes long on a busy machine. */
jest.setTimeout(120_000);

/**
 * Number of worlds to try from the recorded seed on, because code changes also change the random
 * streams.
 */
const MAX_SEEDS = 20;

const root = new URL('../../../..', import.meta.url);

describe('bug catalogue', () => {
  it.each(BUG_CATALOGUE)('finds the bug: $name', async (bug) => {
    const seed = await findSeed(bug, bug.seed, MAX_SEEDS);
    if (seed !== bug.seed)
      process.stderr.write(
        `${bug.name}: found by seed ${seed} instead of the recorded ${bug.seed}; see nx run simulation:bug-catalogue\n`,
      );
  });

  it.each(BUG_CATALOGUE)('names an existing checker: $name', ({ checker }) => {
    expect(existsSync(new URL(`libs/simulation/src/${checker}`, root))).toBe(true);
  });

  it('matches docs/bug-catalogue.md', () => {
    const rows = readFileSync(new URL('docs/bug-catalogue.md', root), 'utf8')
      .split('\n')
      .filter(isRow)
      .map(withoutAlignment);
    expect(rows).toEqual(
      [...BUG_CATALOGUE.map(toWorldRow), ...FAULTY_RUNTIMES.map(toRuntimeRow)].map(
        withoutAlignment,
      ),
    );
  });
});

/** Returns true for a row of a Markdown table that is neither its heading nor the line below. */
function isRow(line: string, index: number, lines: readonly string[]): boolean {
  return (
    line.startsWith('|') && !line.startsWith('| -') && !(lines[index + 1] ?? '').startsWith('| -')
  );
}

/** Removes the spaces that align a table. */
function withoutAlignment(line: string): string {
  return line.replace(/ +/g, ' ').trim();
}
