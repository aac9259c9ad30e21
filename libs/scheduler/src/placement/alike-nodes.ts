import { NO_CLASS } from '../columns/node-classes.js';
import type { NodeTable } from '../columns/node-table.js';
import type { Slot } from '../columns/value-column.js';
import type { FilterCandidate, FilterRun } from '../filters/filter.js';
import { AVAILABILITY_ORDER } from '../input/node.js';
import type { FullRequest } from '../input/request.js';
import { customAmount } from '../input/custom-resources.js';
import { RESOURCE_FIELDS, type ResourceField } from '../input/resources.js';

/** Nodes on which the same filters fail for the same reasons. */
export interface AlikeNodes {
  readonly example: FilterCandidate;
  readonly count: number;
}

/** Where the free amounts of each resource are. */
const FREE_COLUMNS = {
  cpuMillis: 'freeCpu',
  memoryBytes: 'freeMemory',
  storageBytes: 'freeStorage',
  bandwidthBps: 'freeBandwidth',
  gpus: 'freeGpus',
} as const satisfies Record<ResourceField, keyof NodeTable>;

const NO_DOMAIN_COUNT = { count: 0 };

/**
 * Returns true when the filters depend on the class, the labels and the amounts of a node alone:
 * without workload terms of the request, host ports and a required spread. Terms of existing replicas
 * are not considered.
 */
export function dependsOnNodesAlone(request: FullRequest): boolean {
  const { workloadAffinity, workloadAntiAffinity, hostPorts, spread } = request;
  return (
    workloadAffinity.length + workloadAntiAffinity.length + hostPorts.length === 0 &&
    spread?.mode !== 'required'
  );
}

/** Creates the run for the filters over {@link groupAlikeNodes}. */
export function createNodeRun(request: FullRequest): FilterRun {
  return { request, affinity: [], antiAffinity: [], spreadCeiling: undefined };
}

/**
 * Groups all nodes by what a request reads of them: the class, the values of the labels that the
 * request names, and whether each amount is short now or for ever. Filters are then asked once for
 * each group, not for each node. For requests of which {@link dependsOnNodesAlone} is true.
 */
export function groupAlikeNodes(request: FullRequest, table: NodeTable): readonly AlikeNodes[] {
  const groups = new Map<string, { readonly slot: Slot; count: number }>();
  const toKey = createKey(request, table);
  for (let slot: Slot = 0; slot < table.size; slot += 1) {
    if (table.classOf[slot] === NO_CLASS) continue;
    const key = toKey(slot);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, { slot, count: 1 });
    else group.count += 1;
  }
  return Array.from(groups.values(), ({ slot, count }) => ({
    example: toCandidate(table, slot),
    count,
  }));
}

/** Returns a function that returns equal texts only for nodes that are alike for the request. */
function createKey(request: FullRequest, table: NodeTable): (slot: Slot) => string {
  const columns = listLabelKeys(request).map((key) => table.columns.label(key).valueOf);
  const needed = RESOURCE_FIELDS.filter((field) => request.resources[field] > 0).map((field) => ({
    field,
    need: request.resources[field],
    free: table[FREE_COLUMNS[field]],
  }));
  const custom = Object.entries(request.resources.custom).map(([name, need]) => ({
    name,
    need,
    free: table.custom.freeOf(name),
  }));
  return (slot) => {
    const node = table.records[slot];
    let key = `${table.classOf[slot] ?? 0}`;
    for (const values of columns) key += `/${values[slot] ?? 0}`;
    if (node?.unavailable !== undefined)
      for (const condition of AVAILABILITY_ORDER)
        key += node.node.availability?.[condition] === true ? 'y' : 'n';
    if ((table.replicasLeft[slot] ?? 0) <= 0) key += node?.maxReplicas === 0 ? 'R' : 'r';
    for (const { field, need, free } of needed)
      if ((free[slot] ?? 0) < need)
        key += need > (node?.allocatable[field] ?? 0) ? `+${field}` : `-${field}`;
    for (const { name, need, free } of custom)
      if ((free[slot] ?? 0) < need) {
        const has = customAmount(node?.allocatable.custom ?? {}, name);
        key += `${need > has ? '>' : '<'}${name.length}:${name}`;
      }
    return key;
  };
}

/** Lists the node labels of which a request requires something. */
function listLabelKeys({
  nodeSelector,
  nodeAffinity,
  nodeAntiAffinity,
}: FullRequest): readonly string[] {
  const terms = [...nodeAffinity, ...nodeAntiAffinity].filter(({ mode }) => mode === 'required');
  const keys = terms.flatMap(({ requirements }) => requirements.map(({ key }) => key));
  return [...new Set([...Object.keys(nodeSelector), ...keys])];
}

function toCandidate(table: NodeTable, slot: Slot): FilterCandidate {
  const node = table.records[slot];
  if (node === undefined) throw new Error('a slot with a class has a node');
  return {
    node,
    allocated: table.allocatedOn(slot),
    replicas: table.replicas[slot] ?? 0,
    heldPort: undefined,
    excludedBy: undefined,
    affinityDomains: [],
    antiAffinityDomains: [],
    inSpread: NO_DOMAIN_COUNT,
  };
}
