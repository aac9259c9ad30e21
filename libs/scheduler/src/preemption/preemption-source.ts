import type { NodeId, ReplicaId, WorkloadId } from '@cloudless/base';
import type { Slot } from '../columns/value-column.js';
import type { FullRequest } from '../input/request.js';
import type { HeldReservation } from '../input/reservation.js';
import type { Resources } from '../input/resources.js';
import type { EligibleNodes } from '../placement/eligible-nodes.js';
import type { Claim } from '../reservations/claim.js';

/** A node as preemption sees it. */
export interface PreemptionNode {
  readonly allocatable: Resources;
  readonly maxReplicas: number;
}

/** Replicas of one workload that are not leaving. */
export interface StayingReplicas {
  /** By slot. Slots beyond the end have none. */
  readonly onNode: Int32Array;
  /** By the number of the zone. */
  readonly inZone: Int32Array;
  /** Number of the zone of a node, by slot. */
  readonly zoneOf: Int32Array;
}

/** The input of preemption from the cluster. Slots of the table of nodes identify the nodes. */
export interface PreemptionSource {
  /** Number of slots, with and without a node. */
  readonly size: number;
  /** Position of the id of a node in the order of all ids, by slot. */
  readonly rankOf: Int32Array;
  slotOf(nodeId: NodeId): Slot | undefined;
  nodeIdOf(slot: Slot): NodeId;
  /** Returns undefined for a slot without a node. */
  node(slot: Slot): PreemptionNode | undefined;
  reservationsOn(slot: Slot): readonly HeldReservation[];
  /** Calls `visit` with what each reservation of a node holds. */
  forEachClaim(slot: Slot, visit: (claim: Claim, isLeaving: boolean) => void): void;
  /**
   * Finds the nodes that pass every filter that an eviction does not change: all but resources,
   * host ports and the number of replicas.
   */
  findEligible(request: FullRequest): EligibleNodes;
  /**
   * Returns true when a node passes these filters after the victims have left. The victims may be
   * the replicas that the request has to be near.
   */
  isEligibleWithout(request: FullRequest, slot: Slot, victims: ReadonlySet<ReplicaId>): boolean;
  /** Counts the replicas of a workload that are not leaving. */
  countStaying(workloadId: WorkloadId): StayingReplicas;
}
