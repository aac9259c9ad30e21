import { spawn, spawnSync } from 'node:child_process';
import { findMachinesProblem } from '@cloudless/e2e';

const STOP_SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
/** Set for the process that has the network namespace. */
const INSIDE = 'CLOUDLESS_CHAOS_INSIDE';
/** Exit code of a run that a signal ended. */
export const EXIT_STOPPED = 130;
/** Exit code when the process in the network namespace ended by a signal. */
const EXIT_KILLED = 1;

/**
 * Returns why there can be no run on this machine; undefined when there can be one.
 * @param programs - Programs that must be installed.
 */
export function findProblem(programs: readonly string[]): string | undefined {
  const problem = findMachinesProblem();
  if (problem !== undefined) return problem;
  const missing = programs.filter((name) => spawnSync(name, ['--version']).error);
  return missing.length === 0 ? undefined : `not installed: ${missing.join(', ')}`;
}

/** Returns true for the process that {@link runInside} has started. */
export const isInside = (): boolean => process.env[INSIDE] !== undefined;

/**
 * Runs this program again in a new network namespace. The other process ends the cluster when it
 * gets a signal, and when its input ends because this process was killed.
 */
export function runInside(): Promise<number> {
  const [, script = '', ...args] = process.argv;
  const command = ['--net', process.execPath, ...process.execArgv, script, ...args];
  const env = { ...process.env, [INSIDE]: 'yes' };
  const child = spawn('unshare', command, { stdio: ['pipe', 'inherit', 'inherit'], env });
  for (const signal of STOP_SIGNALS) process.on(signal, () => child.kill('SIGTERM'));
  return new Promise((resolve) => child.once('exit', (code) => resolve(code ?? EXIT_KILLED)));
}

/** Returns a signal that aborts when the run must end early. */
export function createStopSignal(): AbortSignal {
  const stopping = new AbortController();
  for (const signal of STOP_SIGNALS) process.on(signal, () => stopping.abort());
  process.stdin.once('end', () => stopping.abort()).resume();
  return stopping.signal;
}
