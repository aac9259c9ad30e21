import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** Where Linux distributions keep the programs of the system, whatever the PATH of the agent is. */
const PATH = '/usr/sbin:/usr/bin:/sbin:/bin';

/**
 * Runs a program of the system, in English: what it says on stderr becomes part of an error.
 * @throws the error of `execFile`, with `stderr`.
 */
export async function runTool(name: string, args: readonly string[]): Promise<void> {
  await run(name, [...args], { env: { PATH, LC_ALL: 'C' } });
}
