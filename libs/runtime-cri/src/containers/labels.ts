import type { ContainerId } from '@cloudless/base';
import type { ContainerRequest, PortRequest } from '@cloudless/runtime';

/** Owner of containers. Two agents on one socket never touch the containers of the other. */
export interface Owner {
  readonly cluster: string;
  readonly node: string;
}

/** Label keys on every sandbox and container of Cloudless. */
export const LABELS = {
  cluster: 'io.cloudless.cluster',
  node: 'io.cloudless.node',
  containerId: 'io.cloudless.container-id',
} as const;
/** Annotation with the parts of a request that no runtime returns otherwise. */
const REQUEST_ANNOTATION = 'io.cloudless.memory';

/**
 * Parts of a request that are stored on its container. Fields that earlier versions did not write
 * are absent.
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
 * Whether a container has the labels of an owner. Checked in addition to the filter of the runtime.
 */
export function isOwned(labels: Readonly<Record<string, string>>, owner: Owner): boolean {
  return (
    labels[LABELS.cluster] === owner.cluster &&
    labels[LABELS.node] === owner.node &&
    /^[0-9a-f]{64}$/.test(labels[LABELS.containerId] ?? '')
  );
}

/** Reads the Cloudless id of a container from its labels. */
export function readContainerId(labels: Readonly<Record<string, string>>): ContainerId {
  return (labels[LABELS.containerId] ?? '') as ContainerId;
}

/** Returns the group whose empty directories a container shares. */
export function toVolumeGroup({
  group,
  containerId,
}: Pick<ContainerRequest, 'group' | 'containerId'>): string {
  return group ?? containerId;
}

/** Whether a container has directories that are removed with its group. */
export function needsVolumeGroup({
  volumes = [],
  shmSizeBytes,
}: Pick<ContainerRequest, 'volumes' | 'shmSizeBytes'>): boolean {
  return shmSizeBytes !== undefined || volumes.some(({ source }) => source.kind === 'emptyDir');
}

/**
 * Stores the parts of a request in an annotation, because labels of a request may be longer than
 * runtimes accept labels.
 */
export function toAnnotations(request: ContainerRequest): Record<string, string> {
  const { labels, ports, network } = request;
  const memory: RecordedRequest = {
    labels,
    ports,
    ...(needsVolumeGroup(request) ? { group: toVolumeGroup(request) } : {}),
    ...(network?.hostNetwork === true ? { hostNetwork: true } : {}),
  };
  return { [REQUEST_ANNOTATION]: JSON.stringify(memory) };
}

/** Reads what {@link toAnnotations} has written; empty when the annotation is damaged. */
export function fromAnnotations(annotations: Readonly<Record<string, string>>): RecordedRequest {
  try {
    const { labels, ports, group, hostNetwork } = JSON.parse(
      annotations[REQUEST_ANNOTATION] ?? '{}',
    ) as Partial<RecordedRequest>;
    return {
      labels: isStringRecord(labels) ? labels : {},
      ports: Array.isArray(ports) ? ports.filter(isPort) : [],
      ...(typeof group === 'string' ? { group } : {}),
      ...(hostNetwork === true ? { hostNetwork } : {}),
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
