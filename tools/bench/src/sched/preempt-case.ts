import {
  createSeededRandom,
  toNodeId,
  toReplicaId,
  toWorkloadId,
  type Random,
} from '@cloudless/base';
import { createCluster, type Cluster } from '@cloudless/scheduler';
import type { SchedOptions } from './cases.js';
import { measureCalls, type CaseFigures } from './measure.js';
import { createNode, createRequest, draw, MIB } from './worlds.js';

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

/**
 * A full cluster with four replicas of low priority on each node (20,000 on 5,000 nodes), and a
 * stream of replicas of high priority: each evicts its victims and takes their place.
 */
export function runPreempt(options: SchedOptions): Readonly<Record<string, CaseFigures>> {
  const random = createSeededRandom(options.seed);
  const cluster = createFullWorld(random, options.nodes);
  let [refused, victimsTooHigh, victims] = [0, 0, 0];
  const stream = measureCalls(
    cluster,
    Math.round(STREAM / options.divisor),
    (index) => {
      const request = createRequest(`high-${index % 20}`, {
        priority: HIGH_PRIORITY,
        resources: { cpuMillis: draw(random, 500, 4_000), memoryBytes: 500 * MIB },
      });
      const decision = cluster.preempt(request);
      let nodeId = decision.kind === 'preempt' ? decision.nodeId : undefined;
      if (decision.kind === 'preempt') {
        for (const { replicaId, priority } of decision.victims) {
          victims += 1;
          victimsTooHigh += Number(priority > LOW_PRIORITY_MAX);
          cluster.release(replicaId);
        }
      } else if (decision.kind === 'fits') {
        const [placement] = cluster.place(request, 1);
        nodeId = placement?.placed === true ? placement.nodeId : undefined;
      }
      if (nodeId === undefined) {
        refused += 1;
        return 0;
      }
      const { workloadId, namespace, resources } = request;
      const replicaId = toReplicaId(`high-${index}`);
      cluster.reserve({
        replicaId,
        nodeId,
        workloadId,
        namespace,
        resources,
        priority: HIGH_PRIORITY,
      });
      return 1;
    },
    options.budgetSeconds,
  );
  options.violations.checkZero(refused, 'replicas of high priority refused');
  options.violations.checkZero(victimsTooHigh, 'victims of equal or higher priority');
  options.violations.check(victims > 0, 'nothing was evicted');
  return { stream };
}
