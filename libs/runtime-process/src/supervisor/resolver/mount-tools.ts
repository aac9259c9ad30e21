import { execFile } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { errorMessageOf, quoteForShell } from '@cloudless/base';
import { makeDirectorySync } from '@cloudless/app-kit';
import { findProgram, TRIAL_TIMEOUT_MS } from '../process/shell-tools.js';
import { UNSHARE_ARGUMENTS, type MountTools } from './own-mounts.js';

/** The tools, or why processes cannot have mounts of their own here, as a text for people. */
export type MountSupport = { readonly tools: MountTools } | { readonly problem: string };

/**
 * Finds the programs of util-linux or busybox, and tries them.
 * @param directory - Directory of the supervisor, for the files of the trial.
 * @param shell - Absolute path; undefined where processes have no guard.
 */
export async function findMountTools(
  directory: string,
  shell: string | undefined,
): Promise<MountSupport> {
  if (shell === undefined)
    return { problem: 'this needs Linux with sh, setsid, env, sleep and grep' };
  const [unshare, nsenter, mount] = ['unshare', 'nsenter', 'mount'].map(findProgram);
  if (unshare === undefined || nsenter === undefined || mount === undefined)
    return { problem: 'the machine lacks unshare, nsenter or mount' };
  const tools = { unshare, nsenter, mount };
  const trial = path.join(directory, 'mount-trial');
  try {
    makeDirectorySync(trial, 0o700);
    const [source = '', target = ''] = ['source', 'target'].map((name) => path.join(trial, name));
    for (const file of [source, target]) writeFileSync(file, '');
    // nsenter is tried too: commands in a container enter its namespace.
    const words = [mount, '--bind', source, target].map(quoteForShell).join(' ');
    const script = `${words} && exec ${quoteForShell(nsenter)} --mount=/proc/self/ns/mnt -- ${quoteForShell(shell)} -c :`;
    await runMountTool(unshare, [...UNSHARE_ARGUMENTS, shell, '-c', script]);
    return { tools };
  } catch (reason) {
    return { problem: errorMessageOf(reason) };
  } finally {
    rmSync(trial, { recursive: true, force: true });
  }
}

/** Runs a program; rejects with what the program wrote to stderr. */
export function runMountTool(file: string, args: readonly string[]): Promise<void> {
  return new Promise((resolve, reject) => {
    execFile(file, args, { env: {}, timeout: TRIAL_TIMEOUT_MS }, (failure, _stdout, stderr) => {
      if (failure === null) resolve();
      else reject(new Error(stderr.trim() || failure.message));
    });
  });
}
