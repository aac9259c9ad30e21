import { readdirSync, readFileSync } from 'node:fs';
import { readStartToken } from '@cloudless/app-kit/background';
import { killProcesses, MAX_KILL_ROUNDS, type ProcessReference } from './process-reference.js';

/** Environment variable with the container id, which marks every process of a container. */
export const CONTAINER_MARK = 'CLOUDLESS_CONTAINER_ID';
/** Environment variable with the id of a command, which marks every process of a command. */
export const EXEC_MARK = 'CLOUDLESS_EXEC_ID';

/** A process whose environment carries the mark of a container. */
export interface MarkedProcess extends ProcessReference {
  readonly containerId: string;
  /** Undefined for a process that no command started. */
  readonly execId: string | undefined;
}

/**
 * Finds processes by the marks in their environment. Children inherit the marks, also daemons that
 * left the process group. A process that cleared its environment is not found. Returns nothing
 * where there is no `/proc`.
 */
export function findMarkedProcesses(): readonly MarkedProcess[] {
  if (process.platform !== 'linux') return [];
  return readdirSync('/proc').flatMap((entry) => {
    if (!/^\d+$/.test(entry)) return [];
    let environment: string;
    try {
      environment = readFileSync(`/proc/${entry}/environ`, 'latin1');
    } catch {
      return []; // ended meanwhile, or of another user
    }
    const containerId = readVariable(environment, CONTAINER_MARK);
    const pid = Number(entry);
    const startToken = containerId === undefined ? undefined : readStartToken(pid);
    if (containerId === undefined || startToken === undefined) return [];
    return [{ pid, startToken, containerId, execId: readVariable(environment, EXEC_MARK) }];
  });
}

/** Kills every marked process for which `isLeftover` returns true. */
export function killMarkedProcesses(isLeftover: (candidate: MarkedProcess) => boolean): void {
  for (let round = 0; round < MAX_KILL_ROUNDS; round += 1) {
    const leftovers = findMarkedProcesses().filter(isLeftover);
    if (leftovers.length === 0) return;
    killProcesses(leftovers);
  }
}

function readVariable(environment: string, name: string): string | undefined {
  const prefix = `${name}=`;
  if (!environment.includes(prefix)) return undefined;
  return environment
    .split('\0')
    .find((entry) => entry.startsWith(prefix))
    ?.slice(prefix.length);
}
