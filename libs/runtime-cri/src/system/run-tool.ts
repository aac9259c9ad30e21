import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** Directories of system programs on Linux, independent of the PATH of the agent. */
const PATH = '/usr/sbin:/usr/bin:/sbin:/bin';

/**
 * Runs a system program with English messages, because its stderr becomes part of an error.
 * @throws the error of `execFile`, with `stderr`.
 */
export async function runTool(name: string, args: readonly string[]): Promise<void> {
  await run(name, [...args], { env: { PATH, LC_ALL: 'C' } });
}
