import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** Directories of system programs on Linux, independent of the PATH of the agent. */
const PATH = '/usr/sbin:/usr/bin:/sbin:/bin';

/**
 * Runs a system program with English messages, because its stderr becomes part of an error.
 * @throws The error of `execFile` when the program is missing or does not exit with 0. Its property
 *   `stderr` is the text that the program wrote.
 */
export async function runTool(name: string, args: readonly string[]): Promise<void> {
  await run(name, [...args], { env: { PATH, LC_ALL: 'C' } });
}
