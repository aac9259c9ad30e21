import { execFile } from 'node:child_process';
import { accessSync, constants, existsSync } from 'node:fs';
import path from 'node:path';
import { quoteForShell, type Log } from '@cloudless/base';
import { Cgroup, toDirectoryGroup, readOwnGroups } from '../../system/cgroups.js';
import type { ShellTools } from './launch-script.js';

/** Where programs are searched, whatever the PATH of the supervisor. */
const FOLDERS = ['/usr/bin', '/bin', '/usr/sbin', '/sbin', '/usr/local/bin'];
/** Longest run of a trial script. A shell needs milliseconds; a shell that hangs is not used. */
export const TRIAL_TIMEOUT_MS = 10_000;

/**
 * Finds the programs that guards need: a POSIX shell, `setsid`, `env`, `sleep`, `grep`. Every Linux
 * distribution has them (util-linux and coreutils, or busybox).
 * @param shell - Absolute path; by default the `sh` of this machine.
 * @returns Undefined where a program is missing, as on macOS: processes then have no guard.
 */
export async function findShellTools(shell = findProgram('sh')): Promise<ShellTools | undefined> {
  if (process.platform !== 'linux' || !existsSync('/proc/uptime')) return undefined;
  const [env, setsid, sleep, grep] = ['env', 'setsid', 'sleep', 'grep'].map(findProgram);
  if (
    shell === undefined ||
    env === undefined ||
    setsid === undefined ||
    sleep === undefined ||
    grep === undefined
  )
    return undefined;
  const environment = await runScript(
    shell,
    `unset PWD OLDPWD SHLVL _; exec ${quoteForShell(env)}`,
  );
  if (environment === undefined) return undefined;
  const addedVariables = environment
    .split('\n')
    .flatMap((line) => (line.includes('=') ? [line.slice(0, line.indexOf('='))] : []));
  return { shell, env, setsid, sleep, grep, addedVariables };
}

/**
 * Creates the parent cgroup of all containers and checks that processes can join it.
 * @param directory - Directory of the supervisor, from which the name of the cgroup follows.
 * @returns Undefined where this user lacks the permission, or there are no cgroups.
 */
export async function openContainerGroups(
  directory: string,
  { shell }: ShellTools,
  log: Log,
): Promise<Cgroup | undefined> {
  for (const ownGroup of readOwnGroups()) {
    const group = toDirectoryGroup(ownGroup, directory);
    const trial = new Cgroup(path.join(group.folder, 'trial'));
    try {
      trial.create();
      const joined = await runScript(shell, `echo 0 >${quoteForShell(trial.joinFile)}`);
      trial.kill();
      trial.remove();
      if (joined !== undefined) return group;
    } catch (reason) {
      log.debug('cgroups not usable', { own: ownGroup, error: String(reason) });
    }
    group.remove();
  }
  return undefined;
}

/** Returns the absolute path of a program of the system; undefined when there is none. */
export function findProgram(name: string): string | undefined {
  return FOLDERS.map((folder) => path.join(folder, name)).find((file) => {
    try {
      accessSync(file, constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

/** Runs a script and returns its output; undefined when the script fails. */
function runScript(shell: string, script: string): Promise<string | undefined> {
  return new Promise((resolve) => {
    execFile(shell, ['-c', script], { env: {}, timeout: TRIAL_TIMEOUT_MS }, (failure, text) =>
      resolve(failure === null ? text : undefined),
    );
  });
}
