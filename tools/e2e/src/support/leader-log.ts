import type { RunningProgram } from './processes.js';

/** What coordinators log when they begin and end to lead. */
const MESSAGES = ['leadership gained', 'leadership lost'] as const;

/** A change of the leadership in the log of a coordinator. */
export interface LeadershipChange {
  readonly message: (typeof MESSAGES)[number];
  readonly epoch: number;
}

/** Returns the changes of the leadership in the log of a process, oldest first. */
export function readLeadershipChanges(lines: readonly string[]): readonly LeadershipChange[] {
  return lines
    .filter((line) => MESSAGES.some((message) => line.includes(`"message":"${message}"`)))
    .map((line) => {
      const { message, epoch } = JSON.parse(line) as LeadershipChange;
      return { message, epoch: Number(epoch) };
    });
}

/**
 * Returns the coordinator that leads, as the logs of the processes say: the one that gained the
 * newest leadership. Undefined when its process has ended, or has lost that leadership.
 */
export function findLeader<Coordinator extends { readonly program: RunningProgram }>(
  coordinators: readonly Coordinator[],
): Coordinator | undefined {
  let newest = 0;
  let leader: Coordinator | undefined;
  for (const coordinator of coordinators) {
    const { program } = coordinator;
    for (const { message, epoch } of readLeadershipChanges(program.lines)) {
      if (message === 'leadership gained' && epoch > newest)
        [newest, leader] = [epoch, program.hasEnded ? undefined : coordinator];
      else if (message === 'leadership lost' && epoch === newest) leader = undefined;
    }
  }
  return leader;
}
