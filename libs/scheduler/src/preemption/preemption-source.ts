import type { NodeId, ReplicaId, WorkloadId } from '@cloudless/base';
import type { FullRequest } from '../input/request.js';
import type { HeldReservation } from '../input/reservation.js';
import type { Resources } from '../input/resources.js';

/** A node as preemption sees it. */
export interface PreemptionNode {
  readonly allocatable: Resources;
  readonly maxReplicas: number;
  /** Key of the zone of the node. Nodes of equal zones have equal keys. */
  readonly zoneKey: string;
}

/** What preemption reads of the cluster. */
export interface PreemptionSource {
  nodeIds(): Iterable<NodeId>;
  node(nodeId: NodeId): PreemptionNode | undefined;
  reservationsOn(nodeId: NodeId): readonly HeldReservation[];
  /**
   * Returns true when filters other than capacity depend on other replicas: affinity, anti-affinity
   * (also of existing replicas) or a required spread.
   */
  dependsOnReplicas(request: FullRequest): boolean;
  /**
   * Returns a test for the nodes that pass every filter that an eviction does not change: all but
   * resources, host ports and the number of replicas.
   */
  createEligibility(request: FullRequest): (nodeId: NodeId) => boolean;
  /**
   * Returns true when a node passes these filters after the victims have left. The victims may be
   * the replicas that the request has to be near.
   */
  isEligibleWithout(request: FullRequest, nodeId: NodeId, victims: ReadonlySet<ReplicaId>): boolean;
  /** Counts the replicas of a workload that are not leaving, by node. */
  countStaying(workloadId: WorkloadId): ReadonlyMap<NodeId, number>;
}
