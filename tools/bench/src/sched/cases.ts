import { createSeededRandom, toNodeId, toReplicaId } from '@cloudless/base';
import type { Cluster, PlacementRequest } from '@cloudless/scheduler';
import type { Violations } from '../violations.js';
import { measureCalls, type CaseFigures } from './measure.js';
import {
  createNode,
  createRequest,
  createUniqueRequest,
  createWorld,
  placeAndReserve,
} from './worlds.js';

/** Settings of all benchmarks of the scheduler. */
export interface SchedOptions {
  readonly seed: number;
  readonly nodes: number;
  /** CPU seconds after which a case makes no further call. */
  readonly budgetSeconds: number;
  /** Divides the numbers of replicas, for a short run. */
  readonly divisor: number;
  readonly violations: Violations;
}

type Cases = Readonly<Record<string, CaseFigures>>;
type AnyCases = Readonly<Record<string, CaseFigures | Readonly<Record<string, unknown>>>>;

/** Checks that no node holds more than it has. */
function checkCapacity(cluster: Cluster, options: SchedOptions, nodes = options.nodes): void {
  let exceeded = 0;
  for (let index = 0; index < nodes; index += 1) {
    const usage = cluster.usage(toNodeId(`node-${index}`));
    if (usage === undefined) continue;
    const { allocated, allocatable, replicas, maxReplicas } = usage;
    const fits =
      allocated.cpuMillis <= allocatable.cpuMillis &&
      allocated.memoryBytes <= allocatable.memoryBytes &&
      replicas <= maxReplicas;
    exceeded += Number(!fits);
  }
  options.violations.checkZero(exceeded, 'nodes beyond their capacity');
}

/** Checks that every replica of a case found a node; all worlds have room. */
function checkPlaced(options: SchedOptions, name: string, refused: number): void {
  options.violations.checkZero(refused, `${name}: replicas refused`);
}

/** 50,000 equal replicas of 50 workloads: in calls of 1,000, and one at a time. */
export function runBasic(options: SchedOptions): Cases {
  const { seed, nodes, budgetSeconds, divisor } = options;
  const perWorkload = Math.max(1, Math.round(1_000 / divisor));
  const results: Record<string, CaseFigures> = {};
  for (const [name, batch] of [
    ['batches', perWorkload],
    ['oneAtATime', 1],
  ] as const) {
    const cluster = createWorld(createSeededRandom(seed), nodes);
    let refused = 0;
    const calls = (50 * perWorkload) / batch;
    results[name] = measureCalls(
      cluster,
      calls,
      (index) => {
        const workload = `basic-${Math.floor((index * batch) / perWorkload)}`;
        const placed = placeAndReserve(cluster, createRequest(workload), batch, `r-${index}`);
        refused += batch - placed.length;
        return placed.length;
      },
      budgetSeconds,
    );
    checkPlaced(options, name, refused);
    checkCapacity(cluster, options);
  }
  results['decisionsOnly'] = measureDecisions(options, perWorkload);
  return results;
}

/** The same requests without the reservations after them. */
function measureDecisions(options: SchedOptions, perWorkload: number): CaseFigures {
  const cluster = createWorld(createSeededRandom(options.seed), options.nodes);
  return measureCalls(
    cluster,
    50,
    (index) => cluster.place(createRequest(`basic-${index}`), perWorkload).length,
    options.budgetSeconds,
  );
}

/** Replicas of which no two have the same request. */
export function runHetero(options: SchedOptions): Cases {
  const random = createSeededRandom(options.seed);
  const cluster = createWorld(random, options.nodes);
  let refused = 0;
  const unique = measureCalls(
    cluster,
    Math.round(40_000 / options.divisor),
    (index) => {
      const request = createUniqueRequest(random, index);
      const placed = placeAndReserve(cluster, request, 1, `r-${index}`);
      refused += 1 - placed.length;
      return placed.length;
    },
    options.budgetSeconds,
  );
  checkPlaced(options, 'unique', refused);
  checkCapacity(cluster, options);
  return { unique };
}

const APP_TERM = (app: string) => [{ key: 'app', operator: 'In' as const, values: [app] }];

/** A request of each kind of constraint. */
const CONSTRAINTS: Readonly<Record<string, (name: string) => Partial<PlacementRequest>>> = {
  requiredZoneSpread: () => ({ spread: { topology: 'zone', mode: 'required', maxSkew: 1 } }),
  preferredRackSpread: () => ({ spread: { topology: 'rack', mode: 'preferred' } }),
  nodeAffinity: () => ({
    nodeAffinity: [
      {
        mode: 'required',
        requirements: [{ key: 'generation', operator: 'In', values: ['2', '3'] }],
      },
      {
        mode: 'preferred',
        weight: 50,
        requirements: [{ key: 'disk', operator: 'In', values: ['nvme'] }],
      },
    ],
  }),
  workloadAffinity: (name) => ({
    workloadAffinity: [{ mode: 'required', topology: 'zone', selector: APP_TERM(name) }],
  }),
  antiAffinity: (name) => ({
    workloadAntiAffinity: [{ mode: 'required', topology: 'node', selector: APP_TERM(name) }],
  }),
};

/** Each kind of constraint alone: 20 workloads of 500 replicas, each in one call. */
export function runConstraints(options: SchedOptions): Cases {
  const perWorkload = Math.max(1, Math.round(500 / options.divisor));
  return Object.fromEntries(
    Object.entries(CONSTRAINTS).map(([name, createFields]) => {
      const cluster = createWorld(createSeededRandom(options.seed), options.nodes);
      let refused = 0;
      let sharedNodes = 0;
      const figures = measureCalls(
        cluster,
        20,
        (index) => {
          const workload = `${name}-${index}`.toLowerCase();
          const request = createRequest(workload, createFields(workload));
          const placed = placeAndReserve(cluster, request, perWorkload, workload);
          refused += perWorkload - placed.length;
          if (name === 'antiAffinity') sharedNodes += placed.length - new Set(placed).size;
          return placed.length;
        },
        options.budgetSeconds,
      );
      checkPlaced(options, name, refused);
      options.violations.checkZero(sharedNodes, 'replicas that share a node against their term');
      checkCapacity(cluster, options);
      return [name, figures];
    }),
  );
}

/** Node counts of `sched-scale`, up to {@link SCALE_FACTOR} times the nodes of the other cases. */
const SCALES = [1_000, 5_000, 20_000, 100_000];
const SCALE_FACTOR = 20;

/** The same work on clusters of growing size: equal replicas in calls of 1,000, and unique ones. */
export function runScale(options: SchedOptions): AnyCases {
  const results: Record<string, Record<string, unknown>> = {};
  for (const nodes of SCALES.filter((count) => count <= SCALE_FACTOR * options.nodes)) {
    const random = createSeededRandom(options.seed);
    const cluster = createWorld(random, nodes);
    const batch = Math.max(1, Math.round(1_000 / options.divisor));
    const equal = measureCalls(
      cluster,
      20,
      (index) => placeAndReserve(cluster, createRequest(`s-${index}`), batch, `s-${index}`).length,
      options.budgetSeconds,
    );
    const unique = measureCalls(
      cluster,
      Math.round(1_000 / options.divisor),
      (index) =>
        placeAndReserve(cluster, createUniqueRequest(random, index), 1, `u-${index}`).length,
      options.budgetSeconds,
    );
    checkCapacity(cluster, options, nodes);
    results[`nodes${nodes}`] = { equal, unique };
  }
  return results;
}

/** 5,000 nodes and 100,000 replicas of 1,000 workloads; then a tenth of the nodes is lost. */
export function runStorm(options: SchedOptions): Cases {
  const cluster = createWorld(createSeededRandom(options.seed), options.nodes);
  const workloads = Math.max(1, Math.round(1_000 / options.divisor));
  const onNode = new Map<string, { readonly workload: string; readonly id: string }[]>();
  for (let index = 0; index < workloads; index += 1) {
    const workload = `storm-${index}`;
    placeAndReserve(cluster, createRequest(workload), 100, workload).forEach((nodeId, number) => {
      const held = onNode.get(nodeId) ?? [];
      held.push({ workload, id: `${workload}-${number}` });
      onNode.set(nodeId, held);
    });
  }
  const lost = Array.from({ length: options.nodes / 10 }, (_, index) => index * 10);
  const replaced = new Map<string, number>();
  const random = createSeededRandom(options.seed);
  const nodes = Array.from({ length: options.nodes }, (_, index) => createNode(random, index));
  const mark = measureCalls(
    cluster,
    lost.length,
    (index) => {
      const node = nodes[lost[index] ?? 0];
      if (node === undefined) return 0;
      cluster.upsertNode({ ...node, availability: { lost: true } });
      const held = onNode.get(node.id) ?? [];
      for (const { workload, id } of held) {
        cluster.release(toReplicaId(id));
        replaced.set(workload, (replaced.get(workload) ?? 0) + 1);
      }
      return held.length;
    },
    Infinity,
  );
  const waiting = [...replaced];
  let refused = 0;
  const decide = measureCalls(
    cluster,
    waiting.length,
    (index) => {
      const [workload = '', count = 0] = waiting[index] ?? [];
      const placed = placeAndReserve(cluster, createRequest(workload), count, `${workload}-new`);
      refused += count - placed.length;
      return placed.length;
    },
    options.budgetSeconds,
  );
  checkPlaced(options, 'storm', refused);
  checkCapacity(cluster, options);
  return { nodesMarkedLost: mark, replicasReplaced: decide };
}
