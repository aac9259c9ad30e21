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
  type SchedulerNode,
} from '../index.js';
import { aNode, aRequest, aReservation } from '../testing/builders.js';
import { compareVictimPriorities } from './preemption.js';

/** More nodes than share a bound or a word of a set. */
const NODES = 140;
const STEPS = 60;
const WORKLOADS = ['web', 'api', 'batch'] as const;

/** A cluster beside plain copies of its nodes and reservations. */
interface PlainHistory {
  readonly cluster: Cluster;
  readonly nodes: Map<string, SchedulerNode>;
  readonly reservations: Map<string, Reservation>;
}

function draw(random: Random, min: number, max: number): number {
  return min + Math.floor(random.next() * (max - min + 1));
}

function aPlainNode(random: Random, index: number): SchedulerNode {
  return aNode(`n${index}`, {
    zone: ['a', 'b', 'c'][index % 3] ?? 'a',
    capacity: { cpuMillis: draw(random, 2, 8), memoryBytes: draw(random, 2, 8) },
    maxReplicas: draw(random, 2, 6),
    availability: { cordoned: draw(random, 0, 9) === 0 },
  });
}

function aPlainReservation(random: Random, id: string, nodeIndex: number): Reservation {
  return aReservation(id, {
    nodeId: toNodeId(`n${nodeIndex}`),
    workloadId: toWorkloadId(WORKLOADS[draw(random, 0, 2)] ?? 'web'),
    priority: [0, 3, 10, 10, 40, 150][draw(random, 0, 5)] ?? 0,
    resources: { cpuMillis: draw(random, 0, 3), memoryBytes: draw(random, 0, 3) },
    leaving: draw(random, 0, 19) === 0,
  });
}

function aPlainRequest(random: Random): PlacementRequest {
  return aRequest({
    workloadId: toWorkloadId(WORKLOADS[draw(random, 0, 2)] ?? 'web'),
    priority: [0, 10, 11, 100, 200][draw(random, 0, 4)] ?? 0,
    resources: { cpuMillis: draw(random, 0, 8), memoryBytes: draw(random, 0, 8) },
    ...(draw(random, 0, 3) === 0 ? { zones: ['a', 'b'] } : {}),
  });
}

/** Makes a random change of the cluster and of the copies. */
function change({ cluster, nodes, reservations }: PlainHistory, random: Random, step: number) {
  const index = draw(random, 0, NODES - 1);
  const kind = draw(random, 0, 9);
  if (kind === 0) {
    cluster.removeNode(toNodeId(`n${index}`));
    nodes.delete(`n${index}`);
  } else if (kind <= 2) {
    const node = aPlainNode(random, index);
    cluster.upsertNode(node);
    nodes.set(node.id, node);
  } else if (kind <= 5) {
    const [id] = [...reservations.keys()].slice(draw(random, 0, reservations.size - 1));
    if (id === undefined) return;
    cluster.release(toReplicaId(id));
    reservations.delete(id);
  } else {
    const reservation = aPlainReservation(random, `s${step}-${index}`, index);
    cluster.reserve(reservation);
    reservations.set(reservation.replicaId, reservation);
  }
}

/** What a decision comes to, whatever equal victims it has chosen. */
interface Outcome {
  readonly kind: PreemptionDecision['kind'];
  readonly nodeId?: string;
  readonly priorities?: readonly number[];
}

function toOutcome(decision: PreemptionDecision): Outcome {
  if (decision.kind !== 'preempt') return { kind: decision.kind };
  const priorities = decision.victims.map(({ priority }) => priority);
  return { kind: 'preempt', nodeId: decision.nodeId, priorities };
}

/** Returns true when a request has room on a node beside some reservations. */
function hasRoom(node: SchedulerNode, request: PlacementRequest, held: readonly Reservation[]) {
  const isFree = (field: 'cpuMillis' | 'memoryBytes'): boolean => {
    const used = held.reduce((sum, { resources }) => sum + resources[field], 0);
    const needed = request.resources[field];
    return needed === 0 || used + needed <= node.capacity[field];
  };
  return held.length < (node.maxReplicas ?? 0) && isFree('cpuMillis') && isFree('memoryBytes');
}

/** Decides by brute force over all nodes and all sets of victims. */
function decideBruteForce(history: PlainHistory, request: PlacementRequest): Outcome {
  const reservations = [...history.reservations.values()];
  const { priority = 50, workloadId, zones = [] } = request;
  const own = reservations.filter((held) => held.workloadId === workloadId && !held.leaving);
  const zoneOf = (id: string): string | undefined => history.nodes.get(id)?.zone;
  let best:
    (Outcome & { readonly priorities: readonly number[]; ties: readonly number[] }) | undefined;
  const ids = [...history.nodes.keys()].sort();
  for (const node of history.nodes.values()) {
    if (node.availability?.cordoned === true) continue;
    if (zones.length > 0 && !zones.includes(node.zone ?? '')) continue;
    const here = reservations.filter(({ nodeId }) => nodeId === node.id);
    if (hasRoom(node, request, here)) return { kind: 'fits' };
    const staying = here.filter(({ leaving }) => leaving !== true);
    const candidates = staying.filter(
      (held) => (held.priority ?? 50) < priority && held.workloadId !== workloadId,
    );
    const ties = [
      own.filter(({ nodeId }) => zoneOf(nodeId) === node.zone).length,
      own.filter(({ nodeId }) => nodeId === node.id).length,
      ids.indexOf(node.id),
    ];
    for (let set = 0; set < 2 ** candidates.length; set += 1) {
      const victims = candidates.filter((_, index) => (set & (1 << index)) !== 0);
      if (
        !hasRoom(
          node,
          request,
          staying.filter((held) => !victims.includes(held)),
        )
      )
        continue;
      const priorities = victims.map((held) => held.priority ?? 50).sort((a, b) => b - a);
      const comparison =
        best === undefined
          ? -1
          : compareVictimPriorities(priorities, best.priorities) ||
            compareVictimPriorities(ties, best.ties);
      if (comparison < 0) best = { kind: 'preempt', nodeId: node.id, priorities, ties };
    }
  }
  if (best === undefined) return { kind: 'impossible' };
  return { kind: 'preempt', nodeId: best.nodeId ?? '', priorities: best.priorities };
}

function startHistory(random: Random): PlainHistory {
  const history: PlainHistory = {
    cluster: createCluster(),
    nodes: new Map(),
    reservations: new Map(),
  };
  for (let index = 0; index < NODES; index += 1) {
    const node = aPlainNode(random, index);
    history.cluster.upsertNode(node);
    history.nodes.set(node.id, node);
    for (let part = 0; part < 4; part += 1) {
      const reservation = aPlainReservation(random, `r${index}-${part}`, index);
      history.cluster.reserve(reservation);
      history.reservations.set(reservation.replicaId, reservation);
    }
  }
  return history;
}

describe('preempt on many nodes, between changes', () => {
  const seeds = Array.from({ length: 20 }, (_, seed) => seed + 1);

  it.each(seeds)('seed %i: decides as brute force does, and chooses the first of ties', (seed) => {
    const random = createSeededRandom(seed);
    const history = startHistory(random);
    for (let step = 0; step < STEPS; step += 1) {
      const request = aPlainRequest(random);
      const decision = history.cluster.preempt(request);
      expect(toOutcome(decision)).toEqual(decideBruteForce(history, request));
      if (decision.kind === 'preempt') {
        for (const { replicaId } of decision.victims) {
          history.cluster.release(replicaId);
          history.reservations.delete(replicaId);
        }
        const { workloadId, priority = 50, resources } = request;
        const taken = aReservation(`t${step}`, {
          ...{ workloadId, priority, resources },
          nodeId: decision.nodeId,
        });
        history.cluster.reserve(taken);
        history.reservations.set(taken.replicaId, taken);
      }
      for (let each = draw(random, 0, 3); each > 0; each -= 1) change(history, random, step);
    }
  });
});
