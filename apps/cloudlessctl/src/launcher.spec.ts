import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const LAUNCHER = fileURLToPath(new URL('../bin/cloudlessctl.mjs', import.meta.url));

let home: string;
let command: string;
beforeAll(() => {
  home = mkdtempSync(join(tmpdir(), 'cloudless launcher '));
  for (const folder of ['apps/cloudlessctl/bin', 'dist/apps/cloudlessctl', 'node_modules/.bin']) {
    mkdirSync(join(home, folder), { recursive: true });
  }
  const launcher = join(home, 'apps/cloudlessctl/bin/cloudlessctl.mjs');
  copyFileSync(LAUNCHER, launcher);
  chmodSync(launcher, 0o755);
  command = join(home, 'node_modules/.bin/cloudlessctl');
  symlinkSync('../../apps/cloudlessctl/bin/cloudlessctl.mjs', command); // as npm installs it
  const printArguments =
    'console.log(JSON.stringify([process.argv.slice(2), process.env.FROM_FILE ?? "unset"]));';
  writeFileSync(
    join(home, 'dist/apps/cloudlessctl/main.mjs'),
    `${printArguments}\nprocess.exitCode = Number(process.env.CODE ?? 0);\n`,
  );
});
afterAll(() => rmSync(home, { recursive: true, force: true }));

/**
 * Runs the launcher with a cloudlessctl that prints its arguments and `FROM_FILE` as JSON.
 * @param exitCode - Exit code of that cloudlessctl.
 */
function run(
  args: readonly string[],
  exitCode = 0,
): { readonly status: number | null; readonly stderr: string; readonly printed: unknown } {
  const env = { ...process.env, NODE_OPTIONS: '', CODE: String(exitCode) };
  const { status, stdout, stderr } = spawnSync(command, args, { cwd: home, env, encoding: 'utf8' });
  return { status, stderr, printed: stdout === '' ? undefined : JSON.parse(stdout) };
}

describe('launcher bin/cloudlessctl.mjs', () => {
  it.each([
    {
      name: 'a missing --env-file',
      args: ['workload', 'create', 'web', '--env-file', 'missing.env'],
    },
    { name: '--env-file with an equals sign', args: ['--env-file=missing.env'] },
    {
      name: 'options with the names of Node options',
      args: ['--version', '--inspect', '-e', '--', '--test', '--env-file=missing.env'],
    },
    {
      name: 'arguments with spaces and quotes, and empty arguments',
      args: ['a b', '"$HOME"', "it's", '', '*'],
    },
  ])('passes $name unchanged to cloudlessctl', ({ args }) => {
    expect(run(args)).toEqual({ status: 0, stderr: '', printed: [args, 'unset'] });
  });

  it('does not read the file of --env-file into the environment of cloudlessctl', () => {
    writeFileSync(join(home, 'web.env'), 'FROM_FILE=1\nCODE=9\n');
    const args = ['workload', 'create', 'web', '--env-file', 'web.env'];
    expect(run(args)).toEqual({ status: 0, stderr: '', printed: [args, 'unset'] });
  });

  it('exits with the exit code of cloudlessctl', () => {
    expect(run([], 7).status).toBe(7);
  });
});
