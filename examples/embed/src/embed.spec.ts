import { readFileSync } from 'node:fs';
import { jest } from '@jest/globals';

/** Runs a program of this folder. @returns the lines that it printed. */
async function outputOf(program: string): Promise<readonly string[]> {
  const log = jest.spyOn(console, 'log').mockImplementation(() => undefined);
  try {
    await import(`./${program}.js`);
    return log.mock.calls.map(([line]) => String(line));
  } finally {
    log.mockRestore();
  }
}

/** The output of a program as the README shows it. */
function documentedOutput(program: string): readonly string[] {
  const readme = readFileSync(new URL('../README.md', import.meta.url), 'utf8');
  const block = new RegExp(`\`\`\`text ${program}\n([^]*?)\`\`\``).exec(readme)?.[1] ?? '';
  return block.trimEnd().split('\n');
}

describe('examples/embed', () => {
  it.each(['place-replicas', 'plan-rollout'])(
    '%s prints what the README shows',
    async (program) => {
      const printed = await outputOf(program);
      expect(printed).toEqual(documentedOutput(program));
      expect(printed.length).toBeGreaterThan(3);
    },
  );
});
