/**
 * What an agent writes on each container, so that it finds its own again without any other memory.
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
  /** The order that the container was started by. */
  readonly orderRevision: bigint;
  /** How often the replica had been restarted in place when this container was started. */
  readonly restarts: number;
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
  labelPrefix: 'cloudless.label/',
  annotationPrefix: 'cloudless.annotation/',
} as const;

/**
 * The labels of a container: its owner, and the labels and annotations that users gave the
 * workload.
 */
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
    ...withPrefix(CONTAINER_LABELS.labelPrefix, spec.labels),
    ...withPrefix(CONTAINER_LABELS.annotationPrefix, spec.annotations),
  };
}

/** Who owns a container; undefined when it is not one of an agent, or its labels were damaged. */
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
    version: wholeNumber(labels[CONTAINER_LABELS.version]),
    slot: wholeNumber(labels[CONTAINER_LABELS.slot]),
    orderRevision: BigInt(revision),
    restarts: wholeNumber(labels[CONTAINER_LABELS.restarts]),
  };
}

function wholeNumber(text: string | undefined): number {
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
