import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import { buildLaunchScript, type ShellTools } from './launch-script.js';
import { findShellTools } from './shell-tools.js';

let directory: string;
beforeAll(() => {
  directory = mkdtempSync(path.join(tmpdir(), 'cloudless-launch-'));
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

/** Variables that some shells interpret or set themselves. */
const SPECIAL = [
  'PWD',
  'OLDPWD',
  'SHLVL',
  '_',
  'IFS',
  'UID',
  'PPID',
  'PS1',
  'OPTIND',
  'ENV',
  'with.dot',
  'a-b',
  '1st',
];
const anyEnvironment = fc.dictionary(
  fc
    .oneof(fc.constantFrom(...SPECIAL), fc.stringMatching(/^[A-Z_][A-Z0-9_]{1,8}$/))
    .filter((name) => !name.startsWith('LD_')),
  fc.string({ unit: 'grapheme' }).filter((text) => !text.includes('\0')),
  { maxKeys: 6, noNullPrototype: true },
);

/** Runs a launch script and returns the environment and arguments that its program gets. */
function run(
  tools: ShellTools,
  env: Readonly<Record<string, string>>,
  args: readonly string[],
): unknown {
  const file = path.join(directory, 'script');
  const print = 'process.stdout.write(JSON.stringify([process.env, process.argv.slice(1)]))';
  const command = [process.execPath, '-e', print, '--', ...args];
  const steps = { command, context: { env, workingDir: '/' }, leadsSession: false };
  writeFileSync(file, buildLaunchScript(steps, tools));
  return JSON.parse(execFileSync(tools.shell, [file], { env: {}, encoding: 'utf8' }));
}

describe('a launch script', () => {
  it.each(['/bin/sh', '/bin/dash', '/bin/bash'])(
    'passes the exact environment and arguments to its program when %s runs it',
    async (shell) => {
      const tools = existsSync(shell) ? await findShellTools(shell) : undefined;
      if (tools === undefined) return;
      fc.assert(
        fc.property(
          anyEnvironment,
          fc.array(
            fc.string().filter((text) => !text.includes('\0')),
            { maxLength: 3 },
          ),
          (env, args) => {
            expect(run(tools, env, args)).toEqual([env, args]);
          },
        ),
        { numRuns: 10, seed: 20_260_101 },
      );
    },
  );

  it.each(['/bin/sh', '/bin/dash', '/bin/bash'])(
    'adds nothing to the output of its program when %s runs it',
    async (shell) => {
      const tools = existsSync(shell) ? await findShellTools(shell) : undefined;
      if (tools === undefined) return;
      const file = path.join(directory, 'quiet');
      const context = {
        env: { LANG: 'none_XX', LC_ALL: 'none_XX.UTF-8', LC_CTYPE: 'none' },
        workingDir: '/',
      };
      writeFileSync(
        file,
        buildLaunchScript({ command: ['/bin/true'], context, leadsSession: false }, tools),
      );
      expect(spawnSync(tools.shell, [file], { env: {}, encoding: 'utf8' })).toMatchObject({
        status: 0,
        stdout: '',
        stderr: '',
      });
    },
  );

  it('passes values of ordinary variables by export, not as arguments that every user can read', () => {
    const tools = {
      shell: '/bin/sh',
      env: '/usr/bin/env',
      setsid: '/usr/bin/setsid',
      sleep: '',
      grep: '',
      addedVariables: ['_'],
    };
    const context = { env: { TOKEN: 'hush' }, workingDir: '/' };
    const script = buildLaunchScript(
      { command: ['app'], context, joinFile: '/g/cgroup.procs', leadsSession: true },
      tools,
    );
    expect(script.split('\n').filter((line) => line.includes('hush'))).toEqual([
      `export TOKEN=hush`,
    ]);
    expect(script).toContain(`exec /usr/bin/env -u _ /usr/bin/setsid -- app 3>&- 4>&- 5>&-`);
  });
});

describe('a launch script with mounts of its own', () => {
  it('enters a namespace in its own process, mounts, and reports its process id only then', () => {
    const tools = {
      ...{ shell: '/bin/sh', env: '/usr/bin/env', setsid: '/usr/bin/setsid' },
      ...{ sleep: '', grep: '', addedVariables: [] },
    };
    const ownMounts = {
      tools: { unshare: '/bin/unshare', nsenter: '/bin/nsenter', mount: '/bin/mount' },
      mounts: [{ source: "/data/it's", target: '/etc/resolv.conf' }],
    };
    const script = buildLaunchScript(
      { command: ['app'], context: { env: {}, workingDir: '/' }, leadsSession: true, ownMounts },
      tools,
    );
    expect(script.split('\n')).toEqual([
      `[ "$1" = entered ] || exec /bin/unshare --mount --propagation slave -- /bin/sh "$2" entered 2>&3`,
      `CLOUDLESS_GUARD_REST=$(/bin/mount --bind '/data/it'\\''s' /etc/resolv.conf 2>&1) || { echo "$CLOUDLESS_GUARD_REST" >&3; exit 125; }`,
      'exec 2>&5',
      'read -r CLOUDLESS_GUARD_PID CLOUDLESS_GUARD_REST </proc/self/stat',
      'echo "$CLOUDLESS_GUARD_PID" >&3 || exit',
      'unset CLOUDLESS_GUARD_PID CLOUDLESS_GUARD_REST',
      'unset PWD OLDPWD SHLVL _',
      `exec /usr/bin/setsid -- app 3>&- 4>&- 5>&-`,
      '',
    ]);
  });
});
