import {
  createSeededRandom,
  toNodeId,
  toReplicaId,
  toWorkloadId,
  type Random,
} from '@cloudless/base';
import {
  createCluster,
  type Cluster,
  type PlacementRequest,
  type PreemptionDecision,
  type Reservation,
} from '@cloudless/scheduler';
import type { SchedOptions } from './cases.js';
import { measureCalls, type CaseFigures } from './measure.js';
import { createNode, createRequest, createUniqueRequest, draw, MIB, ZONES } from './worlds.js';

/** Replicas that fill a node, each with a part of its CPU. */
const PARTS = 4;
/** Replicas of high priority in the stream. */
const STREAM = 5_000;
const HIGH_PRIORITY = 500;
/** Highest priority of the replicas that fill the nodes. */
const LOW_PRIORITY_MAX = 40;

/** Fills every node with four replicas of low priority. */
function createFullWorld(random: Random, nodes: number): Cluster {
  const cluster = createCluster();
  for (let index = 0; index < nodes; index += 1) {
    const node = { ...createNode(random, index), taints: [] };
    cluster.upsertNode(node);
    for (let part = 0; part < PARTS; part += 1) {
      cluster.reserve({
        replicaId: toReplicaId(`low-${index}-${part}`),
        nodeId: toNodeId(`node-${index}`),
        workloadId: toWorkloadId(`low-${index % 50}`),
        namespace: 'default',
        priority: draw(random, 0, LOW_PRIORITY_MAX),
        resources: { cpuMillis: node.capacity.cpuMillis / PARTS, memoryBytes: 500 * MIB },
      });
    }
  }
  return cluster;
}

/** A stream of requests, one replica each, that evict their victims and take their place. */
interface Stream {
  /** Returns the request of a call. */
  readonly toRequest: (index: number) => PlacementRequest;
  /** Returns what the reservation of a request has besides its resources. */
  readonly describe: (request: PlacementRequest) => Partial<Reservation>;
}

function runStream(cluster: Cluster, options: SchedOptions, stream: Stream): CaseFigures {
  let [refused, victimsTooHigh, victims] = [0, 0, 0];
  const evict = (decision: PreemptionDecision & { readonly kind: 'preempt' }): void => {
    for (const { replicaId, priority } of decision.victims) {
      victims += 1;
      victimsTooHigh += Number(priority > LOW_PRIORITY_MAX);
      cluster.release(replicaId);
    }
  };
  const figures = measureCalls(
    cluster,
    Math.round(STREAM / options.divisor),
    (index) => {
      const request = stream.toRequest(index);
      const decision = cluster.preempt(request);
      let nodeId = decision.kind === 'preempt' ? decision.nodeId : undefined;
      if (decision.kind === 'preempt') evict(decision);
      else if (decision.kind === 'fits') {
        const [placement] = cluster.place(request, 1);
        nodeId = placement?.placed === true ? placement.nodeId : undefined;
      }
      if (nodeId === undefined) {
        refused += 1;
        return 0;
      }
      const { workloadId, namespace, resources } = request;
      cluster.reserve({
        replicaId: toReplicaId(`high-${index}`),
        nodeId,
        workloadId,
        namespace,
        resources,
        priority: HIGH_PRIORITY,
        ...stream.describe(request),
      });
      return 1;
    },
    options.budgetSeconds,
  );
  options.violations.checkZero(refused, 'replicas of high priority refused');
  options.violations.checkZero(victimsTooHigh, 'victims of equal or higher priority');
  options.violations.check(victims > 0, 'nothing was evicted');
  return figures;
}

/** Requests of 20 workloads that differ in the CPU. */
function createStream(random: Random): Stream {
  return {
    toRequest: (index) =>
      createRequest(`high-${index % 20}`, {
        priority: HIGH_PRIORITY,
        resources: { cpuMillis: draw(random, 500, 4_000), memoryBytes: 500 * MIB },
      }),
    describe: () => ({}),
  };
}

/**
 * Requests each of a workload of its own, with other amounts, labels, tolerations and a selector.
 * One in four names its zone, and one in eight is larger than a replica of low priority.
 */
function createDifferentStream(random: Random): Stream {
  return {
    toRequest: (index) => ({
      ...createUniqueRequest(random, index),
      priority: HIGH_PRIORITY + (index % 10),
      resources: {
        cpuMillis: index % 8 === 0 ? draw(random, 6_000, 12_000) : draw(random, 500, 4_000),
        memoryBytes: draw(random, 32, 1_000) * MIB + index,
      },
      ...(index % 4 === 0
        ? { regions: ['local'], zones: [ZONES[draw(random, 0, 2)] ?? ZONES[0]] }
        : {}),
    }),
    describe: ({ labels = {}, priority = HIGH_PRIORITY }) => ({ labels, priority }),
  };
}

/** Requests of 20 workloads that allow one of their replicas on a node. */
function createSeparateStream(random: Random): Stream {
  return {
    toRequest: (index) => {
      const workload = `high-${index % 20}`;
      return createRequest(workload, {
        priority: HIGH_PRIORITY,
        resources: { cpuMillis: draw(random, 500, 4_000), memoryBytes: 500 * MIB },
        workloadAntiAffinity: [
          {
            mode: 'required',
            topology: 'node',
            selector: [{ key: 'app', operator: 'In', values: [workload] }],
          },
        ],
      });
    },
    describe: ({ labels = {}, workloadAntiAffinity = [] }) => ({ labels, workloadAntiAffinity }),
  };
}

/**
 * Full clusters with four replicas of low priority on each node (20,000 on 5,000 nodes), and
 * streams of replicas of high priority: each evicts its victims and takes their place.
 */
export function runPreempt(options: SchedOptions): Readonly<Record<string, CaseFigures>> {
  const run = (create: (random: Random) => Stream): CaseFigures => {
    const random = createSeededRandom(options.seed);
    const cluster = createFullWorld(random, options.nodes);
    return runStream(cluster, options, create(random));
  };
  return {
    stream: run(createStream),
    different: run(createDifferentStream),
    antiAffinity: run(createSeparateStream),
  };
}
