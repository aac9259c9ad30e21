import { createSeededRandom, toWorkloadId, type ReplicaId } from '@cloudless/base';
import { createCluster, type Cluster } from '../cluster.js';
import type { Placement } from '../placement/placement.js';
import type { SchedulerNode } from '../input/node.js';
import type { PlacementRequest } from '../input/request.js';
import type { Reservation } from '../input/reservation.js';
import { reservationFor } from './builders.js';
import { ReferenceCluster } from './reference/reference-cluster.js';
import { aWorld, manyNodes, type World } from './worlds.js';

/** One step of a random history. */
export type HistoryStep =
  | { readonly kind: 'upsertNode'; readonly pick: number }
  /** Changes a node without moving it to another domain. */
  | { readonly kind: 'changeNode'; readonly pick: number }
  /** Changes a node to more different states than a cluster keeps classes for, and back. */
  | { readonly kind: 'changeOften'; readonly pick: number }
  | { readonly kind: 'removeNode'; readonly pick: number }
  | { readonly kind: 'reserve'; readonly pick: number }
  | { readonly kind: 'release'; readonly pick: number }
  /** Places without reserving. */
  | { readonly kind: 'try'; readonly pick: number; readonly count: number }
  /** Places, and reserves what was placed. */
  | { readonly kind: 'place'; readonly pick: number; readonly count: number }
  | { readonly kind: 'placeOn'; readonly pick: number };

/** A cluster and the reference scan, driven through the same history. */
export class TwinClusters {
  readonly cluster: Cluster;
  readonly reference = new ReferenceCluster();
  readonly nodes = new Map<string, SchedulerNode>();
  readonly reservations = new Map<ReplicaId, Reservation>();
  private readonly pools: readonly World[];
  private nextReplica = 0;

  /**
   * @param seed - Decides the nodes, reservations and requests that the steps pick from.
   * @param extraNodes - Number of nodes besides the few of a random world.
   */
  constructor(seed: number, extraNodes = 0) {
    this.cluster = createCluster();
    this.pools = [0, 1, 2].map((offset) => aWorld(createSeededRandom(seed + offset)));
    const [first] = this.pools;
    manyNodes(createSeededRandom(seed), extraNodes).forEach((node) => this.upsertNode(node));
    first?.nodes.forEach((node) => this.upsertNode(node));
    first?.reservations.forEach((reservation) => this.reserve(reservation));
  }

  /**
   * Each request for its own workload, for two that have no replicas at first, and for one that gets
   * new labels with each round, so that its next tree begins with replicas.
   */
  get requests(): readonly PlacementRequest[] {
    const requests = this.pools[0]?.requests ?? [];
    const others = ['other', 'third', `changing-${this.nextReplica % 4}`].map((app) => ({
      workloadId: toWorkloadId(app.replace(/-.*/, '')),
      labels: { app },
    }));
    return [
      requests,
      ...others.map((other) => requests.map((one) => ({ ...one, ...other }))),
    ].flat();
  }

  /** Takes one step on both sides. Returns the placements of both sides, of a step that places. */
  take(step: HistoryStep): { actual: Placement[]; expected: Placement[] } | undefined {
    switch (step.kind) {
      case 'upsertNode': {
        const node = pickFrom(
          this.pools.flatMap(({ nodes }) => nodes),
          step.pick,
        );
        if (node !== undefined) this.upsertNode(node);
        return undefined;
      }
      case 'changeNode': {
        const node = pickFrom([...this.nodes.values()], step.pick);
        if (node !== undefined) this.upsertNode(changeInPlace(node, step.pick));
        return undefined;
      }
      case 'changeOften': {
        const node = pickFrom([...this.nodes.values()], step.pick);
        for (let state = 0; node !== undefined && state < 300; state += 1) {
          const taints = [{ key: `state-${step.pick}-${state}`, effect: 'NoExecute' as const }];
          this.cluster.upsertNode({ ...node, taints });
        }
        if (node !== undefined) this.upsertNode(node);
        return undefined;
      }
      case 'removeNode': {
        const node = pickFrom([...this.nodes.values()], step.pick);
        if (node !== undefined) this.removeNode(node);
        return undefined;
      }
      case 'reserve': {
        const all = this.pools.flatMap(({ reservations }) => reservations);
        const reservation = pickFrom(all, step.pick);
        if (reservation !== undefined) this.reserve(reservation);
        return undefined;
      }
      case 'release': {
        const replicaId = pickFrom([...this.reservations.keys()], step.pick);
        if (replicaId !== undefined) this.release(replicaId);
        return undefined;
      }
      case 'try':
      case 'place':
        return this.place(step.pick, step.count, step.kind === 'place');
      case 'placeOn': {
        const request = pickFrom(this.requests, step.pick);
        if (request === undefined) return undefined;
        const nodeIds = [...this.nodes.values()].map(({ id }) => id).reverse();
        return {
          actual: this.cluster.placeOn(request, nodeIds),
          expected: this.reference.placeOn(request, nodeIds),
        };
      }
    }
  }

  private place(pick: number, count: number, isKept: boolean) {
    const request = pickFrom(this.requests, pick);
    if (request === undefined) return undefined;
    const actual = this.cluster.place(request, count);
    const expected = this.reference.place(request, count);
    const kept: Reservation[] = [];
    for (const placement of isKept ? expected : []) {
      if (!placement.placed) break;
      const id = `new-${(this.nextReplica += 1)}`;
      kept.push(reservationFor(request, id, placement.nodeId));
    }
    this.reserveAll(kept);
    return { actual, expected };
  }

  /** Adds reservations that differ in the replica and the node alone. */
  private reserveAll(reservations: readonly Reservation[]): void {
    const [first] = reservations;
    if (first === undefined) return;
    for (const reservation of reservations) {
      this.reservations.set(reservation.replicaId, reservation);
      this.reference.reserve(reservation);
    }
    this.cluster.reserveAll(first, reservations);
  }

  private upsertNode(node: SchedulerNode): void {
    this.nodes.set(node.id, node);
    this.cluster.upsertNode(node);
    this.reference.upsertNode(node);
  }

  private removeNode({ id }: SchedulerNode): void {
    this.nodes.delete(id);
    this.cluster.removeNode(id);
    this.reference.removeNode(id);
  }

  private reserve(reservation: Reservation): void {
    this.reservations.set(reservation.replicaId, reservation);
    this.cluster.reserve(reservation);
    this.reference.reserve(reservation);
  }

  private release(replicaId: ReplicaId): void {
    this.reservations.delete(replicaId);
    this.cluster.release(replicaId);
    this.reference.release(replicaId);
  }
}

/** Returns the node with another availability, reliability, label, taint or size. */
function changeInPlace(node: SchedulerNode, pick: number): SchedulerNode {
  const changes: readonly Partial<SchedulerNode>[] = [
    { availability: { ...node.availability, cordoned: node.availability?.cordoned !== true } },
    { reliability: (pick % 8) / 8 },
    { labels: { ...node.labels, cores: pick % 2 === 0 ? '8' : '16' } },
    { taints: pick % 2 === 0 ? [] : [{ key: 'spot', effect: 'NoExecute' }] },
    { capacity: { ...node.capacity, cpuMillis: 1_000 + 500 * (pick % 5) } },
    { maxReplicas: 1 + (pick % 4) },
    { capacity: { ...node.capacity, custom: { license: pick % 4, fpga: pick % 2 } } },
  ];
  return { ...node, ...changes[pick % changes.length] };
}

function pickFrom<Item>(items: readonly Item[], pick: number): Item | undefined {
  return items[pick % Math.max(1, items.length)];
}
