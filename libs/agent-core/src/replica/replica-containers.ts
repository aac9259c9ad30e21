import {
  CloudlessError,
  definedFields,
  errorKindOf,
  type ContainerId,
  type ErrorKind,
  type StopSignal,
} from '@cloudless/base';
import { requestsIdentity, type Order } from '@cloudless/api';
import {
  listAvailable,
  type ContainerLease,
  type ContainerRequest,
  type ContainerRuntime,
  type ContainerStatus,
  type StartProgress,
} from '@cloudless/runtime';
import { fromContainerLabels } from '../container/container-labels.js';
import { toContainerRequest } from '../container/to-container-request.js';
import type { ServiceAddresses } from '../egress/egress-rules.js';
import type { ReplicaEgress } from '../egress/replica-egress.js';
import { usesFiles } from '../files/file-refs.js';
import type { ReplicaFiles } from '../files/replica-files.js';
import type { NodeNetworkAccess, ServiceAccess } from '../network/node-network.js';
import type { WorkloadIdentities } from '../workload-identity/workload-identities.js';
import { createRuntimeSilentError, mayBeMissing, toReplicaTarget } from './replica-target.js';

/** Runtime and owner of the containers of a node. */
export interface ContainerContext {
  readonly runtime: ContainerRuntime;
  readonly clusterId: () => string;
  readonly nodeId: string;
  /** Certificates of replicas. Absent: this node gives replicas no identity. */
  readonly workloadIdentities?: WorkloadIdentities | undefined;
  /** Secrets and configs of replicas. Absent: this node delivers none. */
  readonly files?: ReplicaFiles | undefined;
  /** The network proxy of the node. Absent: containers get no addresses of services. */
  readonly network?: NodeNetworkAccess | undefined;
  /** Services among the destinations of containers. Absent: containers reach none of them. */
  readonly egress?: ReplicaEgress | undefined;
}

/**
 * Error kinds of a start after which the container may be running nevertheless. The next attempt
 * must use the same container id.
 */
const UNCERTAIN_KINDS: readonly ErrorKind[] = ['unavailable', 'deadline', 'internal'];

/** Prefix of capabilities that name a runtime. */
const RUNTIME_PREFIX = 'runtime.';

/** Returns true when the container may be running although its start failed with `reason`. */
export function isUncertain(reason: unknown): boolean {
  return UNCERTAIN_KINDS.includes(errorKindOf(reason));
}

/** One start of a container of a replica. */
export interface ContainerStart {
  readonly containerId: ContainerId;
  /** Restarts in place and failed starts of the replica before this container. */
  readonly restarts: number;
  /** How many of `restarts` are failed starts. */
  readonly failedStarts: number;
  /** Set for an exclusive replica. */
  readonly lease?: ContainerLease;
}

/** Services that a new container reaches: by name, and by the rules of its egress. */
export interface FoundServices {
  readonly services?: ServiceAccess;
  readonly serviceAddresses?: ServiceAddresses;
}

/**
 * Prepares the start of a container: obtains the certificate of the replica, its secrets and
 * configs, as far as the spec requests them, then pulls the image.
 * @throws As `ContainerRuntime.prepare`, {@link WorkloadIdentities.prepare} and
 *   {@link ReplicaFiles.prepare}; `unimplemented` when
 *   the spec names a runtime or an ability that this node does not have.
 */
export async function prepareContainer(
  order: Order | undefined,
  container: ContainerStart,
  context: ContainerContext,
  progress: (step: StartProgress) => void,
  signal: StopSignal,
): Promise<void> {
  const spec = order?.order.case === 'start' ? order.order.value.spec : undefined;
  if (order !== undefined && spec !== undefined && requestsIdentity(spec))
    await context.workloadIdentities?.prepare(order.replicaId, spec);
  if (order !== undefined && spec !== undefined && usesFiles(spec))
    await context.files?.prepare(order.replicaId, spec, signal);
  await context.runtime.prepare(createRequest(order, container, context), progress, signal);
}

/**
 * Asks the network proxy of the node what a new container needs to reach services. Takes up to a
 * few seconds while the proxy does not answer. Fields without an answer are absent.
 * @throws kind `invalid` when the order has no spec.
 */
export async function findServices(
  order: Order | undefined,
  { network, egress }: ContainerContext,
): Promise<FoundServices> {
  const namespace = order?.order.case === 'start' ? order.order.value.namespace : '';
  const services = network === undefined ? undefined : await network.findServices(namespace);
  const serviceAddresses = order === undefined ? undefined : await egress?.findAddresses(order);
  return definedFields({ services, serviceAddresses });
}

/**
 * Starts a container, or returns the container that an earlier attempt with the same id has
 * started. Calls the runtime at once, because the lease of the container counts from that call.
 * @throws As `ContainerRuntime.start`; `unimplemented` when the spec names a runtime that this node
 *   does not have.
 */
export async function startContainer(
  order: Order | undefined,
  container: ContainerStart,
  found: FoundServices,
  context: ContainerContext,
): Promise<ContainerStatus> {
  const { runtime, egress } = context;
  try {
    const request = createRequest(order, container, context, found);
    const status = await runtime.start(request);
    context.files?.dropCredentials(order?.replicaId ?? '');
    const rules = request.network?.egress;
    if (order !== undefined && rules !== undefined)
      egress?.noteStarted(order, container.containerId, rules, found.services?.dns?.server);
    return status;
  } catch (reason) {
    if (errorKindOf(reason) !== 'exists') throw reason;
    const existing = (await listAvailable(runtime)).containers.find(
      (status) => status.containerId === container.containerId,
    );
    if (existing !== undefined) return existing;
    throw new CloudlessError(
      'unavailable',
      'the container id exists, but the runtime does not list the container',
      {
        cause: reason,
      },
    );
  }
}

function createRequest(
  order: Order | undefined,
  container: ContainerStart,
  { runtime, clusterId, nodeId, workloadIdentities, files }: ContainerContext,
  found: FoundServices = {},
): ContainerRequest {
  if (order === undefined)
    throw new CloudlessError('invalid', 'the agent has no start order for this replica');
  const requiredRuntime = toReplicaTarget(order).runtime;
  const runtimes = runtime
    .capabilities()
    .flatMap((name) =>
      name.startsWith(RUNTIME_PREFIX) ? [name.slice(RUNTIME_PREFIX.length)] : [],
    );
  if (requiredRuntime !== '' && !runtimes.includes(requiredRuntime)) {
    throw new CloudlessError(
      'unimplemented',
      `spec.runtime: this node runs ${runtimes.join(' and ')}, not ${requiredRuntime}`,
    );
  }
  return toContainerRequest(order, {
    ...{ clusterId: clusterId(), nodeId, ...container, ...found },
    ...definedFields({
      identity: workloadIdentities?.findDirectory(order.replicaId),
      files: files?.findAccess(order.replicaId),
    }),
  });
}

/**
 * Stops and removes every container of a replica, including containers that its state does not
 * mention.
 * @param usesImage - False for a plain process; undefined when it is not known.
 * @throws kind `unavailable` while the replica may have containers that the runtime cannot list.
 */
export async function removeContainers(
  replicaId: string,
  usesImage: boolean | undefined,
  { runtime, clusterId, nodeId }: ContainerContext,
): Promise<void> {
  const { containers, missing } = await listAvailable(runtime);
  if (mayBeMissing(usesImage, missing)) throw createRuntimeSilentError(usesImage, missing);
  for (const { containerId, labels, phase } of containers) {
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
