// Other programs, and waiting for a condition.
import { spawnSync } from 'node:child_process';
import { setTimeout as pause } from 'node:timers/promises';
import { SetupError } from './settings.mjs';

/**
 * Where Debian keeps the programs of root, which is not on the path of everyone who became root.
 */
export const env = {
  ...process.env,
  PATH: `${process.env.PATH}:/usr/local/sbin:/usr/sbin:/sbin`,
  LC_ALL: 'C',
};

/** Runs a program to its end. Never throws: `ok` says whether it did its work. */
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

/** Runs a program that has to succeed, and returns what it printed. */
export function run(command, args, options = {}) {
  const { ok, stdout, stderr } = attempt(command, args, options);
  if (!ok)
    throw new SetupError(
      `"${[command, ...args].join(' ')}" failed: ${stderr || stdout.trim() || 'it said nothing'}`,
    );
  return stdout;
}

/** Whether a program is on the path. */
export const has = (command) => attempt('sh', ['-c', `command -v ${command}`]).ok;

/**
 * Asks again and again until the answer is there.
 * @param what - for the message.
 * @param ask - answers `undefined` for "not yet"; throws when it can never be.
 */
export async function until(what, ask, limitMs = 60_000) {
  const deadline = performance.now() + limitMs;
  for (;;) {
    const answer = await ask();
    if (answer !== undefined) return answer;
    if (performance.now() > deadline)
      throw new SetupError(`${what}: still not so after ${limitMs / 1000} s`);
    await pause(25);
  }
}
