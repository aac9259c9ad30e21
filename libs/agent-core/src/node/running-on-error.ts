import { CloudlessError } from '@cloudless/base';
import type { ContainerKind } from '@cloudless/runtime';

/** Instruction to the operator for the time when the runtime answers again. */
const STOP_AGAIN = 'then start the agent and stop it again';

/**
 * Creates the error of a stop that should end all containers of a node and could not. The text says
 * what runs on, why, and what to do.
 * @param silentKinds - Kinds whose runtime does not answer, at least one, in any order.
 * @param supervisorPid - Process id of the silent supervisor; undefined when it is not known.
 */
export function createRunningOnError(
  silentKinds: readonly ContainerKind[],
  supervisorPid: number | undefined,
): CloudlessError {
  const texts = [
    ...(silentKinds.includes('process') ? [describeProcesses(supervisorPid)] : []),
    ...(silentKinds.includes('container')
      ? [
          `the containers of this node were not stopped and run on, because the container runtime does not answer: start the container runtime, ${STOP_AGAIN}`,
        ]
      : []),
  ];
  return new CloudlessError('unavailable', texts.join('; '));
}

function describeProcesses(supervisorPid: number | undefined): string {
  const [name, remedy] =
    supervisorPid === undefined
      ? ['', `read supervisor.log in the directory runtime of the agent's data directory`]
      : [` (process ${supervisorPid})`, `run kill -9 ${supervisorPid} on the machine`];
  return `the processes of this node were not stopped and run on, because the supervisor of the processes${name} does not answer: ${remedy}, ${STOP_AGAIN}`;
}
