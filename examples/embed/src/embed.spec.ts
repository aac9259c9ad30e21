import { readFileSync } from 'node:fs';
import { jest } from '@jest/globals';

/**
 * Runs a program of this folder.
 * @returns The lines that the program printed.
 */
async function runProgram(program: string): Promise<readonly string[]> {
  const log = jest.spyOn(console, 'log').mockImplementation(() => undefined);
  try {
    await import(`./${program}.js`);
    return log.mock.calls.map(([line]) => String(line));
  } finally {
    log.mockRestore();
  }
}

/** Returns the output of a program that the README shows. */
function readDocumentedOutput(program: string): readonly string[] {
  const readme = readFileSync(new URL('../README.md', import.meta.url), 'utf8');
  const block = new RegExp(`\`\`\`text ${program}\n([^]*?)\`\`\``).exec(readme)?.[1] ?? '';
  return block.trimEnd().split('\n');
}

describe('examples/embed', () => {
  it.each(['place-replicas', 'plan-rollout'])(
    '%s prints what the README shows',
    async (program) => {
      const printed = await runProgram(program);
      expect(printed).toEqual(readDocumentedOutput(program));
      expect(printed.length).toBeGreaterThan(3);
    },
  );
});
