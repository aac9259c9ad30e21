import type { NodeId, ReplicaId, WorkloadId } from '@cloudless/base';
import type { NodeTable } from '../columns/node-table.js';
import type { Slot } from '../columns/value-column.js';
import type { IndexedNode } from '../input/node.js';
import type { FullRequest } from '../input/request.js';
import type { HeldReservation } from '../input/reservation.js';
import type { EligibleNodes } from '../placement/eligible-nodes.js';
import type { PlacementEngine } from '../placement/placement-engine.js';
import type { Claim } from '../reservations/claim.js';
import type { Ledger } from '../reservations/ledger.js';
import type { PreemptionSource, StayingReplicas } from './preemption-source.js';

/** The parts of a cluster that preemption reads. */
export interface PreemptionClusterParts {
  readonly table: NodeTable;
  readonly ledger: Ledger;
  readonly engine: PlacementEngine;
}

/** Reads the nodes and reservations of a cluster for preemption. */
export class ClusterPreemptionSource implements PreemptionSource {
  constructor(private readonly parts: PreemptionClusterParts) {}

  get size(): number {
    return this.parts.table.size;
  }

  get rankOf(): Int32Array {
    return this.parts.table.rankOf;
  }

  slotOf(nodeId: NodeId): Slot | undefined {
    return this.parts.table.find(nodeId);
  }

  nodeIdOf(slot: Slot): NodeId {
    const nodeId = this.parts.table.ids[slot];
    if (nodeId === undefined) throw new Error('a slot of a decision has a node');
    return nodeId;
  }

  node(slot: Slot): IndexedNode | undefined {
    return this.parts.table.records[slot];
  }

  reservationsOn(slot: Slot): readonly HeldReservation[] {
    return this.parts.ledger.reservationsOn(this.nodeIdOf(slot));
  }

  forEachClaim(slot: Slot, visit: (claim: Claim, isLeaving: boolean) => void): void {
    this.parts.ledger.forEachClaim(slot, visit);
  }

  findEligible(request: FullRequest): EligibleNodes {
    return this.parts.engine.findEligible(request);
  }

  isEligibleWithout(request: FullRequest, slot: Slot, victims: ReadonlySet<ReplicaId>): boolean {
    return this.parts.ledger.without(victims, () => this.findEligible(request).has(slot));
  }

  countStaying(workloadId: WorkloadId): StayingReplicas {
    const { onNode, inZone } = this.parts.engine.countReplicas(workloadId);
    return { onNode, inZone, zoneOf: this.parts.table.columns.rankedZones.valueOf };
  }
}
