import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { errorMessageOf } from '@cloudless/base';

const run = promisify(execFile);

/** Directories of system programs on Linux, independent of the PATH of the agent. */
const PATH = '/usr/sbin:/usr/bin:/sbin:/bin';

/** Time after which a program is ended: others wait for it. */
const HANGS_AFTER_MS = 30_000;

/**
 * Runs a system program with English messages, because its stderr becomes part of an error.
 * @param input - Text for the standard input of the program. Default: empty.
 * @throws The error of `execFile` when the program is missing, runs for more than 30 s, or does not
 *   exit with 0. The property `stderr` is the text that the program wrote.
 */
export async function runTool(name: string, args: readonly string[], input = ''): Promise<void> {
  const running = run(name, [...args], {
    env: { PATH, LC_ALL: 'C' },
    timeout: HANGS_AFTER_MS,
    killSignal: 'SIGKILL',
  });
  // A program may end before it has read its input; its exit code tells why.
  running.child.stdin?.on('error', () => undefined).end(input);
  await running;
}

/** Returns what a failed program wrote to stderr, or the message of the error. */
export function errorTextOf(reason: unknown): string {
  const { stderr = '' } = reason as { readonly stderr?: string };
  return stderr.trim() === '' ? errorMessageOf(reason) : stderr.trim();
}
