import {
  CloudlessError,
  errorKindOf,
  type ContainerId,
  type ErrorKind,
  type StopSignal,
} from '@cloudless/base';
import type { Order } from '@cloudless/api';
import type {
  ContainerLease,
  ContainerRequest,
  ContainerRuntime,
  ContainerStatus,
  StartProgress,
} from '@cloudless/runtime';
import { fromContainerLabels } from './container-labels.js';
import { toReplicaPlan } from './replica-plan.js';
import { toContainerRequest } from './to-container-request.js';

/** Whose containers. */
export interface ContainerHome {
  readonly runtime: ContainerRuntime;
  readonly clusterId: () => string;
  readonly nodeId: string;
}

/**
 * Failures of a start after which the container may run all the same: the same id must be tried
 * again.
 */
const UNCERTAIN: readonly ErrorKind[] = ['unavailable', 'deadline', 'internal'];

/** Begins the names of those capabilities that say which runtimes there are. */
const RUNTIME = 'runtime.';

/** Whether a failed start leaves open if the container runs. */
export function isUncertain(reason: unknown): boolean {
  return UNCERTAIN.includes(errorKindOf(reason));
}

/** Which container of a replica. */
export interface ContainerPlan {
  readonly containerId: ContainerId;
  readonly restarts: number;
  readonly lease?: ContainerLease;
}

/**
 * Does what can be done before a container is started.
 * @throws As `ContainerRuntime.prepare`; `unimplemented` when the spec asks for another runtime.
 */
export async function prepareContainer(
  order: Order | undefined,
  container: ContainerPlan,
  home: ContainerHome,
  progress: (step: StartProgress) => void,
  signal: StopSignal,
): Promise<void> {
  await home.runtime.prepare(requestFor(order, container, home), progress, signal);
}

/**
 * Starts a container, or finds the one that an earlier try with the same id has started.
 * @throws As `ContainerRuntime.start`; `unimplemented` when the spec asks for another runtime.
 */
export async function startContainer(
  order: Order | undefined,
  container: ContainerPlan,
  home: ContainerHome,
): Promise<ContainerStatus> {
  const { runtime } = home;
  try {
    return await runtime.start(requestFor(order, container, home));
  } catch (reason) {
    if (errorKindOf(reason) !== 'exists') throw reason;
    const found = (await runtime.list()).find(
      (status) => status.containerId === container.containerId,
    );
    if (found !== undefined) return found;
    throw new CloudlessError('unavailable', 'the runtime did not answer for sure', {
      cause: reason,
    });
  }
}

function requestFor(
  order: Order | undefined,
  container: ContainerPlan,
  { runtime, clusterId, nodeId }: ContainerHome,
): ContainerRequest {
  if (order === undefined)
    throw new CloudlessError('invalid', 'there is no order to start this replica');
  const wanted = toReplicaPlan(order).runtime;
  const runtimes = runtime
    .capabilities()
    .flatMap((name) => (name.startsWith(RUNTIME) ? [name.slice(RUNTIME.length)] : []));
  if (wanted !== '' && !runtimes.includes(wanted)) {
    throw new CloudlessError(
      'unimplemented',
      `spec.runtime: this node runs ${runtimes.join(' and ')}, not ${wanted}`,
    );
  }
  return toContainerRequest(order, { clusterId: clusterId(), nodeId, ...container });
}

/** Ends and removes every container of a replica, also those that are not known otherwise. */
export async function removeContainers(
  replicaId: string,
  { runtime, clusterId, nodeId }: ContainerHome,
): Promise<void> {
  for (const { containerId, labels, phase } of await runtime.list()) {
    const owner = fromContainerLabels(labels);
    if (
      owner?.replicaId !== replicaId ||
      owner.clusterId !== clusterId() ||
      owner.nodeId !== nodeId
    )
      continue;
    if (phase === 'running') await runtime.stop(containerId, 0);
    await runtime.remove(containerId);
  }
}
