import { createSeededRandom, type ReplicaId } from '@cloudless/base';
import { createCluster, type Cluster } from '../cluster.js';
import type { Placement } from '../placement/placement.js';
import type { SchedulerNode } from '../input/node.js';
import type { PlacementRequest } from '../input/request.js';
import type { Reservation } from '../input/reservation.js';
import { reservationFor } from './builders.js';
import { ReferenceCluster } from './reference/reference-cluster.js';
import { aWorld, type World } from './worlds.js';

/** One step of a random history. */
export type HistoryStep =
  | { readonly kind: 'upsertNode'; readonly pick: number }
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

  /** @param seed - Decides the nodes, reservations and requests that the steps pick from. */
  constructor(seed: number, create: () => Cluster = createCluster) {
    this.cluster = create();
    this.pools = [0, 1, 2].map((offset) => aWorld(createSeededRandom(seed + offset)));
    const [first] = this.pools;
    first?.nodes.forEach((node) => this.upsertNode(node));
    first?.reservations.forEach((reservation) => this.reserve(reservation));
  }

  get requests(): readonly PlacementRequest[] {
    return this.pools[0]?.requests ?? [];
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
    for (const placement of isKept ? expected : []) {
      if (!placement.placed) break;
      const id = `new-${(this.nextReplica += 1)}`;
      this.reserve(reservationFor(request, id, placement.nodeId));
    }
    return { actual, expected };
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

function pickFrom<Item>(items: readonly Item[], pick: number): Item | undefined {
  return items[pick % Math.max(1, items.length)];
}
