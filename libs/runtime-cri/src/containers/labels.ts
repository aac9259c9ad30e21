import { definedFields, type ContainerId } from '@cloudless/base';
import type { ContainerRequest, PortRequest } from '@cloudless/runtime';
import type { ProcessIdentity } from '../system/host-processes.js';

/**
 * Owner of containers: one agent. Of two agents on one container runtime, neither touches the
 * containers of the other.
 */
export interface Owner {
  /** Name of the cluster, not empty. */
  readonly cluster: string;
  /** Name of the node, not empty. */
  readonly node: string;
}

/** Label keys on every sandbox and container of Cloudless. */
export const LABELS = {
  cluster: 'io.cloudless.cluster',
  node: 'io.cloudless.node',
  containerId: 'io.cloudless.container-id',
} as const;
/** Key of the annotation that stores a {@link RecordedRequest} as JSON. */
const REQUEST_ANNOTATION = 'io.cloudless.memory';

/**
 * Parts of a request that are stored in an annotation of its container, because no container
 * runtime returns them otherwise. Fields that earlier versions of Cloudless did not write are
 * absent.
 */
export interface RecordedRequest {
  readonly labels: Readonly<Record<string, string>>;
  readonly ports: readonly PortRequest[];
  /**
   * Group of containers with which the container shares empty directories; absent without such
   * directories.
   */
  readonly group?: string;
  /** Set when the container is in the network of the machine. */
  readonly hostNetwork?: true;
  /**
   * Process that holds the network of the container; set when a packet filter limits the
   * destinations of its connections.
   */
  readonly filteredSandbox?: ProcessIdentity;
}

/** Returns the label selector for all containers of an owner, which is part of every list. */
export function toOwnerSelector({ cluster, node }: Owner): Record<string, string> {
  return { [LABELS.cluster]: cluster, [LABELS.node]: node };
}

/** Returns the label selector for one container of an owner. */
export function toContainerSelector(
  owner: Owner,
  containerId: ContainerId,
): Record<string, string> {
  return { ...toOwnerSelector(owner), [LABELS.containerId]: containerId };
}

/**
 * Returns true when a container or sandbox has the labels of an owner and a valid container id.
 * Check every item of a list, in addition to the filter of the runtime.
 */
export function isOwned(labels: Readonly<Record<string, string>>, owner: Owner): boolean {
  return (
    labels[LABELS.cluster] === owner.cluster &&
    labels[LABELS.node] === owner.node &&
    isContainerId(labels[LABELS.containerId] ?? '')
  );
}

/** Returns true for a text in the form of a Cloudless container id: 64 hex digits. */
export function isContainerId(text: string): text is ContainerId {
  return /^[0-9a-f]{64}$/.test(text);
}

/**
 * Reads the Cloudless id of a container from its labels; empty for a container of another program.
 */
export function readContainerId(labels: Readonly<Record<string, string>>): ContainerId {
  return (labels[LABELS.containerId] ?? '') as ContainerId;
}

/**
 * Returns the group whose empty directories a container shares: by default the container itself.
 */
export function toVolumeGroup({
  group,
  containerId,
}: Pick<ContainerRequest, 'group' | 'containerId'>): string {
  return group ?? containerId;
}

/**
 * Returns true when a container has empty directories or shared memory, which belong to its group.
 */
export function needsVolumeGroup({
  volumes = [],
  shmSizeBytes,
}: Pick<ContainerRequest, 'volumes' | 'shmSizeBytes'>): boolean {
  return shmSizeBytes !== undefined || volumes.some(({ source }) => source.kind === 'emptyDir');
}

/**
 * Builds the annotation with the {@link RecordedRequest}. The labels of the request are part of the
 * annotation because they may be longer than container runtimes allow for labels.
 */
export function toAnnotations(
  request: ContainerRequest,
  { filteredSandbox }: Pick<RecordedRequest, 'filteredSandbox'> = {},
): Record<string, string> {
  const { labels, ports, network } = request;
  const recorded: RecordedRequest = {
    labels,
    ports,
    ...(needsVolumeGroup(request) ? { group: toVolumeGroup(request) } : {}),
    ...(network?.hostNetwork === true ? { hostNetwork: true } : {}),
    ...definedFields({ filteredSandbox }),
  };
  return { [REQUEST_ANNOTATION]: JSON.stringify(recorded) };
}

/**
 * Reads the annotation that {@link toAnnotations} has written. Damaged parts, and all parts of a
 * missing annotation, are empty or absent.
 */
export function fromAnnotations(annotations: Readonly<Record<string, string>>): RecordedRequest {
  try {
    const { labels, ports, group, hostNetwork, filteredSandbox } = JSON.parse(
      annotations[REQUEST_ANNOTATION] ?? '{}',
    ) as Partial<RecordedRequest>;
    return {
      labels: isStringRecord(labels) ? labels : {},
      ports: Array.isArray(ports) ? ports.filter(isPort) : [],
      ...(typeof group === 'string' ? { group } : {}),
      ...(hostNetwork === true ? { hostNetwork } : {}),
      ...(isProcessIdentity(filteredSandbox) ? { filteredSandbox } : {}),
    };
  } catch {
    return { labels: {}, ports: [] };
  }
}

function isStringRecord(value: unknown): value is Readonly<Record<string, string>> {
  return (
    typeof value === 'object' &&
    value !== null &&
    Object.values(value).every((each) => typeof each === 'string')
  );
}

function isPort(value: unknown): value is PortRequest {
  const { name, port, protocol } = (value ?? {}) as Partial<PortRequest>;
  return (
    typeof name === 'string' && Number.isInteger(port) && (protocol === 'tcp' || protocol === 'udp')
  );
}

function isProcessIdentity(value: unknown): value is ProcessIdentity {
  const { pid, startToken } = (value ?? {}) as Partial<ProcessIdentity>;
  return Number.isInteger(pid) && typeof startToken === 'string';
}
