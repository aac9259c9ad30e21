import type { ContainerId } from '@cloudless/base';
import type { ContainerRequest, PortRequest } from '@cloudless/runtime';

/** Whose containers: two agents on one socket never touch what is the other's. */
export interface Owner {
  readonly cluster: string;
  readonly node: string;
}

/** Label keys on every sandbox and container that we make. */
export const LABELS = {
  cluster: 'io.cloudless.cluster',
  node: 'io.cloudless.node',
  containerId: 'io.cloudless.container-id',
} as const;
/** What we need again and no runtime gives back otherwise. */
const MEMORY = 'io.cloudless.memory';

/** What a container remembers of its request. What older versions did not write is absent. */
export interface Memory {
  readonly labels: Readonly<Record<string, string>>;
  readonly ports: readonly PortRequest[];
  /** With whom it shares empty directories; absent when it has none. */
  readonly group?: string;
  /** It is in the network of the machine. */
  readonly hostNetwork?: true;
}

/** Selects what is ours, and nothing else: part of every list. */
export function ownedBy({ cluster, node }: Owner): Record<string, string> {
  return { [LABELS.cluster]: cluster, [LABELS.node]: node };
}

/** Selects what belongs to one container of ours. */
export function ownedAs(owner: Owner, containerId: ContainerId): Record<string, string> {
  return { ...ownedBy(owner), [LABELS.containerId]: containerId };
}

/** Runtimes ought to filter by labels; what one gave all the same is not touched. */
export function isOwned(labels: Readonly<Record<string, string>>, owner: Owner): boolean {
  return (
    labels[LABELS.cluster] === owner.cluster &&
    labels[LABELS.node] === owner.node &&
    /^[0-9a-f]{64}$/.test(labels[LABELS.containerId] ?? '')
  );
}

/** Our id of a container that is ours. */
export function containerIdOf(labels: Readonly<Record<string, string>>): ContainerId {
  return (labels[LABELS.containerId] ?? '') as ContainerId;
}

/** Whose empty directories a container shares. */
export function groupOf({
  group,
  containerId,
}: Pick<ContainerRequest, 'group' | 'containerId'>): string {
  return group ?? containerId;
}

/** Whether a container has directories that are removed with its group. */
export function hasGroup({
  volumes = [],
  shmSizeBytes,
}: Pick<ContainerRequest, 'volumes' | 'shmSizeBytes'>): boolean {
  return shmSizeBytes !== undefined || volumes.some(({ source }) => source.kind === 'emptyDir');
}

/** Labels of a request may be longer than runtimes take labels, so they go into an annotation. */
export function toAnnotations(request: ContainerRequest): Record<string, string> {
  const { labels, ports, network } = request;
  const memory: Memory = {
    labels,
    ports,
    ...(hasGroup(request) ? { group: groupOf(request) } : {}),
    ...(network?.hostNetwork === true ? { hostNetwork: true } : {}),
  };
  return { [MEMORY]: JSON.stringify(memory) };
}

/** What {@link toAnnotations} wrote; empty when somebody damaged it. */
export function fromAnnotations(annotations: Readonly<Record<string, string>>): Memory {
  try {
    const { labels, ports, group, hostNetwork } = JSON.parse(
      annotations[MEMORY] ?? '{}',
    ) as Partial<Memory>;
    return {
      labels: isTexts(labels) ? labels : {},
      ports: Array.isArray(ports) ? ports.filter(isPort) : [],
      ...(typeof group === 'string' ? { group } : {}),
      ...(hostNetwork === true ? { hostNetwork } : {}),
    };
  } catch {
    return { labels: {}, ports: [] };
  }
}

function isTexts(value: unknown): value is Readonly<Record<string, string>> {
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
