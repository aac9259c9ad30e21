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
  type PreemptOptions,
  type Reservation,
  type SchedulerNode,
} from '../index.js';
import { aNode, aRequest, aReservation } from '../testing/builders.js';
import { compareVictimPriorities } from './preemption.js';

const STEPS = 60;
const WORKLOADS = ['web', 'api', 'batch'] as const;

/** Kinds of nodes and reservations of a history. */
interface Shape {
  readonly nodes: number;
  /** Reservations of a node at first. */
  readonly parts: number;
  /** Most CPU and memory of a node and of a request. */
  readonly capacity: number;
  readonly priorities: readonly number[];
}

/** More nodes than share a bound or a word of a set. */
const MANY_NODES: Shape = {
  nodes: 140,
  parts: 4,
  capacity: 8,
  priorities: [0, 3, 10, 10, 40, 150],
};
/** More victims of one priority than have sums of their own. */
const MANY_VICTIMS: Shape = { nodes: 12, parts: 8, capacity: 16, priorities: [0, 10, 10] };

/** A cluster beside plain copies of its nodes and reservations. */
interface PlainHistory {
  readonly shape: Shape;
  readonly cluster: Cluster;
  readonly nodes: Map<string, SchedulerNode>;
  readonly reservations: Map<string, Reservation>;
}

function draw(random: Random, min: number, max: number): number {
  return min + Math.floor(random.next() * (max - min + 1));
}

function aPlainNode({ capacity }: Shape, random: Random, index: number): SchedulerNode {
  return aNode(`n${index}`, {
    zone: ['a', 'b', 'c'][index % 3] ?? 'a',
    capacity: { cpuMillis: draw(random, 2, capacity), memoryBytes: draw(random, 2, capacity) },
    maxReplicas: draw(random, 2, 9),
    availability: { cordoned: draw(random, 0, 9) === 0 },
  });
}

function aPlainReservation(
  { priorities }: Shape,
  random: Random,
  id: string,
  nodeIndex: number,
): Reservation {
  return aReservation(id, {
    nodeId: toNodeId(`n${nodeIndex}`),
    workloadId: toWorkloadId(WORKLOADS[draw(random, 0, 2)] ?? 'web'),
    priority: priorities[draw(random, 0, priorities.length - 1)] ?? 0,
    resources: { cpuMillis: draw(random, 0, 3), memoryBytes: draw(random, 0, 3) },
    leaving: draw(random, 0, 19) === 0,
  });
}

function aPlainRequest({ capacity }: Shape, random: Random): PlacementRequest {
  return aRequest({
    workloadId: toWorkloadId(WORKLOADS[draw(random, 0, 2)] ?? 'web'),
    priority: [0, 10, 11, 100, 200][draw(random, 0, 4)] ?? 0,
    resources: { cpuMillis: draw(random, 0, capacity), memoryBytes: draw(random, 0, capacity) },
    ...(draw(random, 0, 3) === 0 ? { zones: ['a', 'b'] } : {}),
  });
}

/** Number of replicas of a workload that may be evicted. */
type Permits = (workloadId: string) => number;

/** All replicas are available: an eviction takes a permit. */
function toOptions(permitsOf: Permits): PreemptOptions {
  return { evictabilityOf: () => 'counted', permitsOf };
}

/** Draws the permits of each workload; no limit in one of three cases. */
function drawPermits(random: Random): Permits {
  if (draw(random, 0, 2) === 0) return () => Infinity;
  const permits = new Map(WORKLOADS.map((id) => [id as string, draw(random, 0, 2)]));
  return (workloadId) => permits.get(workloadId) ?? 0;
}

/** Makes a random change of the cluster and of the copies. */
function change(history: PlainHistory, random: Random, step: number): void {
  const { shape, cluster, nodes, reservations } = history;
  const index = draw(random, 0, shape.nodes - 1);
  const kind = draw(random, 0, 9);
  if (kind === 0) {
    cluster.removeNode(toNodeId(`n${index}`));
    nodes.delete(`n${index}`);
  } else if (kind <= 2) {
    const node = aPlainNode(shape, random, index);
    cluster.upsertNode(node);
    nodes.set(node.id, node);
  } else if (kind <= 5) {
    const [id] = [...reservations.keys()].slice(draw(random, 0, reservations.size - 1));
    if (id === undefined) return;
    cluster.release(toReplicaId(id));
    reservations.delete(id);
  } else {
    const reservation = aPlainReservation(shape, random, `s${step}-${index}`, index);
    cluster.reserve(reservation);
    reservations.set(reservation.replicaId, reservation);
  }
}

/** The outcome of a decision, the same whichever of equal victims were chosen. */
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
function decideBruteForce(
  history: PlainHistory,
  request: PlacementRequest,
  permitsOf: Permits,
): Outcome {
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
      const isAllowed = WORKLOADS.every(
        (id) => victims.filter((held) => held.workloadId === id).length <= permitsOf(id),
      );
      if (!isAllowed) continue;
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

function startHistory(shape: Shape, random: Random): PlainHistory {
  const history: PlainHistory = {
    shape,
    cluster: createCluster(),
    nodes: new Map(),
    reservations: new Map(),
  };
  for (let index = 0; index < shape.nodes; index += 1) {
    const node = aPlainNode(shape, random, index);
    history.cluster.upsertNode(node);
    history.nodes.set(node.id, node);
    for (let part = 0; part < shape.parts; part += 1) {
      const reservation = aPlainReservation(shape, random, `r${index}-${part}`, index);
      history.cluster.reserve(reservation);
      history.reservations.set(reservation.replicaId, reservation);
    }
  }
  return history;
}

describe('preempt between changes', () => {
  const seeds = Array.from({ length: 20 }, (_, index) => ({ seed: index + 1 }));

  it.each(
    seeds.flatMap(({ seed }) => [
      { seed, name: 'many nodes', shape: MANY_NODES },
      { seed, name: 'many victims', shape: MANY_VICTIMS },
    ]),
  )('seed $seed, $name: decides as brute force does, also between ties', ({ seed, shape }) => {
    const random = createSeededRandom(seed);
    const history = startHistory(shape, random);
    for (let step = 0; step < STEPS; step += 1) {
      const request = aPlainRequest(shape, random);
      const permitsOf = drawPermits(random);
      const decision = history.cluster.preempt(request, toOptions(permitsOf));
      expect(toOutcome(decision)).toEqual(decideBruteForce(history, request, permitsOf));
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
