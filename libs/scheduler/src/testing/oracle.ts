import type {
  PlacementFilter,
  PlacementRequest,
  Reservation,
  SchedulerNode,
  WorkloadTerm,
} from '../index.js';

/** Input of the oracle: plain lists without indexes. */
export interface PlainWorld {
  readonly nodes: readonly SchedulerNode[];
  readonly reservations: readonly Reservation[];
}

/**
 * Returns every filter that excludes the node, computed by brute force from the documentation: one
 * independent statement per filter, each over the whole world, without order or early exit.
 */
export function findFailingFilters(
  world: PlainWorld,
  request: PlacementRequest,
  node: SchedulerNode,
): ReadonlySet<PlacementFilter> {
  const found = findStaticFailures(request, node);
  const held = world.reservations.filter((r) => r.nodeId === node.id);
  if (held.length + 1 > (node.maxReplicas ?? 110)) found.add('replicas');
  const kinds = {
    cpu: 'cpuMillis',
    memory: 'memoryBytes',
    storage: 'storageBytes',
    bandwidth: 'bandwidthBps',
    gpu: 'gpus',
  } as const;
  for (const [filter, field] of Object.entries(kinds) as [
    keyof typeof kinds,
    (typeof kinds)[keyof typeof kinds],
  ][]) {
    const needed = request.resources[field] ?? 0;
    const reserved = held.map((r) => r.resources[field] ?? 0).reduce((a, b) => a + b, 0);
    if (needed > 0 && needed > allocatableOf(node, field) - reserved) found.add(filter);
  }
  for (const [name, needed] of Object.entries(request.resources.custom ?? {})) {
    const reserved = held.map((r) => r.resources.custom?.[name] ?? 0).reduce((a, b) => a + b, 0);
    if (needed > 0 && needed > (node.capacity.custom?.[name] ?? 0) - reserved)
      found.add('customResource');
  }
  const heldPorts = held.flatMap((r) => r.hostPorts ?? []);
  for (const port of request.hostPorts ?? [])
    if (heldPorts.some((other) => other.number === port.number && other.protocol === port.protocol))
      found.add('hostPort');
  const self = { namespace: request.namespace, labels: request.labels ?? {} };
  for (const term of request.workloadAffinity ?? []) {
    if (term.mode !== 'required') continue;
    const matching = world.reservations.filter(
      (r) =>
        r.leaving !== true &&
        matchesWorkload(term, request.namespace, r) &&
        getDomain(world, r, term) !== undefined,
    );
    const mayBeFirst =
      matching.length === 0 &&
      matchesWorkload(term, request.namespace, self) &&
      domainOfNode(node, term.topology) !== undefined;
    if (
      !mayBeFirst &&
      !matching.some((r) => getDomain(world, r, term) === domainOfNode(node, term.topology))
    )
      found.add('workloadAffinity');
  }
  const clashes = (r: Reservation): boolean => {
    const mine = (request.workloadAntiAffinity ?? []).filter((term) =>
      matchesWorkload(term, request.namespace, r),
    );
    const theirs = (r.workloadAntiAffinity ?? []).filter((term) =>
      matchesWorkload(term, r.namespace, self),
    );
    return [...mine, ...theirs].some(
      (term) =>
        term.mode === 'required' &&
        getDomain(world, r, term) !== undefined &&
        getDomain(world, r, term) === domainOfNode(node, term.topology),
    );
  };
  if (world.reservations.some(clashes)) found.add('workloadAntiAffinity');
  const { spread } = request;
  if (spread?.mode === 'required') {
    const mine = domainOfNode(node, spread.topology);
    const eligibleNodes = world.nodes.filter(
      (n) => findStaticFailures(request, n).size === 0 && fitsEmpty(request, n),
    );
    const domains = eligibleNodes
      .map((n) => domainOfNode(n, spread.topology))
      .filter((d) => d !== undefined);
    const countInDomain = (d: string): number =>
      countReplicas(world, request, (n) => domainOfNode(n, spread.topology) === d);
    const exceedsSkew = (d: string): boolean =>
      domains.some((other) => countInDomain(d) + 1 - countInDomain(other) > (spread.maxSkew ?? 1));
    if (mine === undefined || domains.length === 0 || exceedsSkew(mine)) found.add('spread');
  }
  return found;
}

/**
 * Counts replicas of the request's workload, without leaving replicas, on the selected nodes.
 */
export function countReplicas(
  world: PlainWorld,
  request: PlacementRequest,
  isSelected: (node: SchedulerNode) => boolean,
): number {
  const ids = new Set(world.nodes.filter(isSelected).map((node) => node.id));
  return world.reservations.filter(
    (r) => r.workloadId === request.workloadId && r.leaving !== true && ids.has(r.nodeId),
  ).length;
}

/** Returns the node's domain; undefined when the node is in no domain. */
export function domainOfNode(node: SchedulerNode, topology: string): string | undefined {
  if (topology === 'node') return node.id;
  if (topology === 'region') return node.region || undefined;
  if (topology === 'zone') return node.zone ? `${node.region ?? ''}/${node.zone}` : undefined;
  return node.labels?.[topology];
}

/** Returns the allocatable amount of a resource. */
export function allocatableOf(
  node: SchedulerNode,
  field: 'cpuMillis' | 'memoryBytes' | 'storageBytes' | 'bandwidthBps' | 'gpus',
): number {
  const system =
    field === 'cpuMillis' || field === 'memoryBytes' ? (node.systemReserved?.[field] ?? 0) : 0;
  return (node.capacity[field] ?? 0) - system;
}

/** Returns the failing filters that only the node and the request decide. */
function findStaticFailures(request: PlacementRequest, node: SchedulerNode): Set<PlacementFilter> {
  const found = new Set<PlacementFilter>();
  for (const fact of ['lost', 'unreachable', 'draining', 'cordoned', 'quarantined'] as const)
    if (node.availability?.[fact]) found.add(fact);
  if (request.locality !== 'preferred') {
    if (request.regions?.length && !request.regions.some((r) => r === node.region))
      found.add('region');
    if (request.zones?.length && !request.zones.some((z) => z === node.zone)) found.add('zone');
  }
  for (const capability of request.capabilities ?? [])
    if (!node.capabilities?.includes(capability)) found.add('capability');
  for (const [key, value] of Object.entries(request.nodeSelector ?? {}))
    if (node.labels?.[key] !== value) found.add('nodeSelector');
  for (const term of request.nodeAffinity ?? [])
    if (term.mode === 'required' && !meetsRequirement(term.requirements, node.labels))
      found.add('nodeAffinity');
  for (const term of request.nodeAntiAffinity ?? [])
    if (term.mode === 'required' && meetsRequirement(term.requirements, node.labels))
      found.add('nodeAntiAffinity');
  for (const taint of node.taints ?? []) {
    const accepts = (request.tolerations ?? []).filter((t) => {
      const key =
        t.operator === 'Exists'
          ? !t.key || t.key === taint.key
          : t.key === taint.key && (t.value ?? '') === (taint.value ?? '');
      return key && (!t.effect || t.effect === taint.effect);
    });
    if (taint.effect !== 'PreferNoSchedule' && accepts.length === 0) found.add('taint');
  }
  return found;
}

/** Returns true when the node could hold one replica if it were empty. */
function fitsEmpty(request: PlacementRequest, node: SchedulerNode): boolean {
  const fields = ['cpuMillis', 'memoryBytes', 'storageBytes', 'bandwidthBps', 'gpus'] as const;
  const custom = Object.entries(request.resources.custom ?? {});
  return (
    (node.maxReplicas ?? 110) >= 1 &&
    custom.every(([name, needed]) => !needed || needed <= (node.capacity.custom?.[name] ?? 0)) &&
    fields.every(
      (field) =>
        !request.resources[field] || request.resources[field] <= allocatableOf(node, field),
    )
  );
}

function matchesWorkload(
  term: WorkloadTerm,
  ownNamespace: string,
  other: { readonly namespace: string; readonly labels?: Readonly<Record<string, string>> },
): boolean {
  const namespaces = term.namespaces?.length ? term.namespaces : [ownNamespace];
  return namespaces.includes(other.namespace) && meetsRequirement(term.selector, other.labels);
}

/** Returns the domain of a reservation for a term; undefined when its node is in no domain. */
function getDomain(
  world: PlainWorld,
  reservation: Reservation,
  term: WorkloadTerm,
): string | undefined {
  const node = world.nodes.find((n) => n.id === reservation.nodeId);
  return node && domainOfNode(node, term.topology);
}

function meetsRequirement(
  requirements: WorkloadTerm['selector'],
  labels: Readonly<Record<string, string>> = {},
): boolean {
  let all = true;
  for (const { key, operator, values = [] } of requirements) {
    const value = labels[key];
    if (operator === 'Exists') all &&= value !== undefined;
    if (operator === 'DoesNotExist') all &&= value === undefined;
    if (operator === 'In') all &&= values.some((v) => v === value);
    if (operator === 'NotIn') all &&= values.every((v) => v !== value);
    if (operator === 'Gt') all &&= value !== undefined && Number(value) > Number(values[0]);
    if (operator === 'Lt') all &&= value !== undefined && Number(value) < Number(values[0]);
  }
  return all;
}
