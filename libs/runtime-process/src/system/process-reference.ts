import { isAlive } from '@cloudless/app-kit/background';

/** Id and start time of a process, which distinguish it from a later process with the same id. */
export interface ProcessReference {
  readonly pid: number;
  /** See `readStartToken`. */
  readonly startToken: string;
}

/**
 * Most rounds of searching and killing processes. One round may not be enough, because processes may
 * fork meanwhile.
 */
export const MAX_KILL_ROUNDS = 5;

/** Sends SIGKILL to the process with this id; does nothing when it has ended. */
export function killProcess(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // ended meanwhile
  }
}

/** Sends SIGKILL to these processes, but not to later processes with the same ids. */
export function killProcesses(processes: readonly ProcessReference[]): void {
  for (const { pid, startToken } of processes) if (isAlive(pid, startToken)) killProcess(pid);
}
