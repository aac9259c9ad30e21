/**
 * Owner of a container. The agent stores it in labels of the container, so that it can identify its
 * containers without any other data.
 */
export interface ContainerOwner {
  readonly clusterId: string;
  readonly nodeId: string;
  readonly replicaId: string;
  readonly workloadUid: string;
  readonly namespace: string;
  readonly workload: string;
  /** Version of the replica template. */
  readonly version: number;
  readonly slot: number;
  /** Revision of the order by which the container was started. */
  readonly orderRevision: bigint;
  /** Restarts in place and failed starts of the replica before this container. */
  readonly restarts: number;
  /** How many of `restarts` are failed starts; absent when none is. */
  readonly failedStarts?: number;
}

/** Label keys of a container. Labels and annotations of the spec follow under the two prefixes. */
export const CONTAINER_LABELS = {
  cluster: 'cloudless.cluster',
  node: 'cloudless.node',
  replica: 'cloudless.replica',
  workloadUid: 'cloudless.workload-uid',
  namespace: 'cloudless.namespace',
  workload: 'cloudless.workload',
  version: 'cloudless.version',
  slot: 'cloudless.slot',
  orderRevision: 'cloudless.order-revision',
  restarts: 'cloudless.restarts',
  failedStarts: 'cloudless.failed-starts',
  labelPrefix: 'cloudless.label/',
  annotationPrefix: 'cloudless.annotation/',
} as const;

/** Labels of a container: its owner, and the labels and annotations of the workload spec. */
export function toContainerLabels(
  owner: ContainerOwner,
  spec: {
    readonly labels: Readonly<Record<string, string>>;
    readonly annotations: Readonly<Record<string, string>>;
  },
): Readonly<Record<string, string>> {
  return {
    [CONTAINER_LABELS.cluster]: owner.clusterId,
    [CONTAINER_LABELS.node]: owner.nodeId,
    [CONTAINER_LABELS.replica]: owner.replicaId,
    [CONTAINER_LABELS.workloadUid]: owner.workloadUid,
    [CONTAINER_LABELS.namespace]: owner.namespace,
    [CONTAINER_LABELS.workload]: owner.workload,
    [CONTAINER_LABELS.version]: String(owner.version),
    [CONTAINER_LABELS.slot]: String(owner.slot),
    [CONTAINER_LABELS.orderRevision]: String(owner.orderRevision),
    [CONTAINER_LABELS.restarts]: String(owner.restarts),
    ...(owner.failedStarts === undefined || owner.failedStarts === 0
      ? {}
      : { [CONTAINER_LABELS.failedStarts]: String(owner.failedStarts) }),
    ...withPrefix(CONTAINER_LABELS.labelPrefix, spec.labels),
    ...withPrefix(CONTAINER_LABELS.annotationPrefix, spec.annotations),
  };
}

/**
 * Reads the owner from the labels of a container. Undefined when the cluster, node or replica label
 * is absent or the order revision is not a number. Other labels that are absent or damaged are read
 * as an empty text or 0.
 */
export function fromContainerLabels(
  labels: Readonly<Record<string, string>>,
): ContainerOwner | undefined {
  const clusterId = labels[CONTAINER_LABELS.cluster];
  const nodeId = labels[CONTAINER_LABELS.node];
  const replicaId = labels[CONTAINER_LABELS.replica];
  const revision = labels[CONTAINER_LABELS.orderRevision] ?? '';
  if (
    clusterId === undefined ||
    nodeId === undefined ||
    replicaId === undefined ||
    !/^\d{1,19}$/.test(revision)
  )
    return undefined;
  return {
    clusterId,
    nodeId,
    replicaId,
    workloadUid: labels[CONTAINER_LABELS.workloadUid] ?? '',
    namespace: labels[CONTAINER_LABELS.namespace] ?? '',
    workload: labels[CONTAINER_LABELS.workload] ?? '',
    version: parseWholeNumber(labels[CONTAINER_LABELS.version]),
    slot: parseWholeNumber(labels[CONTAINER_LABELS.slot]),
    orderRevision: BigInt(revision),
    restarts: parseWholeNumber(labels[CONTAINER_LABELS.restarts]),
    ...toFailedStarts(parseWholeNumber(labels[CONTAINER_LABELS.failedStarts])),
  };
}

function toFailedStarts(failedStarts: number): Pick<ContainerOwner, 'failedStarts'> {
  return failedStarts === 0 ? {} : { failedStarts };
}

function parseWholeNumber(text: string | undefined): number {
  return text !== undefined && /^\d{1,10}$/.test(text) ? Number(text) : 0;
}

function withPrefix(
  prefix: string,
  values: Readonly<Record<string, string>>,
): Record<string, string> {
  return Object.fromEntries(
    Object.entries(values).map(([key, value]) => [`${prefix}${key}`, value]),
  );
}
