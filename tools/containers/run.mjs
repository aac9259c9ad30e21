// Runs other programs, and waits for conditions.
import { spawnSync } from 'node:child_process';
import { setTimeout as pause } from 'node:timers/promises';
import { SetupError } from './settings.mjs';

/**
 * Environment of all programs. The path includes the directories for programs of root, which su and
 * sudo may leave out.
 */
export const env = {
  ...process.env,
  PATH: `${process.env.PATH}:/usr/local/sbin:/usr/sbin:/sbin`,
  LC_ALL: 'C',
};

/**
 * Runs a program to its end. Never throws.
 * @param options - Options of `spawnSync`.
 * @returns `ok` (true for exit code 0), stdout, and stderr or the error of the start.
 */
export function attempt(command, args, options = {}) {
  const { status, stdout, stderr, error } = spawnSync(command, args, {
    env,
    encoding: 'utf8',
    ...options,
  });
  return {
    ok: status === 0,
    stdout: stdout ?? '',
    stderr: (error?.message ?? stderr ?? '').trim(),
  };
}

/**
 * Runs a program and returns its stdout.
 * @throws {@link SetupError} when the program fails.
 */
export function run(command, args, options = {}) {
  const { ok, stdout, stderr } = attempt(command, args, options);
  if (!ok)
    throw new SetupError(
      `"${[command, ...args].join(' ')}" failed: ${stderr || stdout.trim() || 'it said nothing'}`,
    );
  return stdout;
}

/** Returns true when a program is on the path. */
export const hasProgram = (command) => attempt('sh', ['-c', `command -v ${command}`]).ok;

/**
 * Repeats a check until it returns a value.
 * @param condition - Description of the condition, for the error.
 * @param check - Returns undefined while the condition does not hold; throws when it never will.
 * @param timeoutMs - Time limit in milliseconds.
 * @returns The value.
 * @throws {@link SetupError} at the time limit.
 */
export async function waitFor(condition, check, timeoutMs = 60_000) {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    const value = await check();
    if (value !== undefined) return value;
    if (performance.now() > deadline)
      throw new SetupError(`${condition}: still not so after ${timeoutMs / 1000} s`);
    await pause(25);
  }
}
