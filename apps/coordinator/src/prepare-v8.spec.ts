import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

/**
 * Runs `testing/young-objects-child.ts` with the Node.js of this test.
 * @returns The number of its lines of code for which V8 chose the old generation (`tenure`), or will
 *   choose this generation once the young generation has its largest size (`maybe tenure`).
 */
async function countPretenured(argument: 'prepared' | 'unprepared'): Promise<number> {
  const program = fileURLToPath(new URL('testing/young-objects-child.ts', import.meta.url));
  const trace = ['--trace-pretenuring', '--trace-pretenuring-statistics'];
  const flags = [...trace, '--conditions=@cloudless/source', '--import', 'tsx'];
  const { NODE_OPTIONS: _, ...env } = process.env;
  const run = promisify(execFile)(process.execPath, [...flags, program, argument], { env });
  const [, ofProgram = ''] = (await run).stdout.split('begin\n');
  return ofProgram.match(/undecided => (?:maybe )?tenure/gu)?.length ?? 0;
}

describe('pretenuring of V8', () => {
  it('is on by default', async () => {
    expect(await countPretenured('unprepared')).toBeGreaterThan(0);
  });

  it('is off after the import of prepare-v8', async () => {
    expect(await countPretenured('prepared')).toBe(0);
  });
});
