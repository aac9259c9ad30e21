import type { NodeId, ReplicaId, WorkloadId } from '@cloudless/base';
import { findFailureBesidesCapacity, findNodeFailure } from '../filters/pipeline.js';
import { zoneKeyOf, type IndexedNode } from '../input/node.js';
import type { FullRequest } from '../input/request.js';
import type { HeldReservation } from '../input/reservation.js';
import type { PlacementRun } from '../placement/placement-run.js';
import type { Ledger } from '../reservations/ledger.js';
import type { PreemptionNode, PreemptionSource } from './preemption-source.js';

/** The parts of a cluster that preemption reads. */
export interface PreemptionClusterParts {
  readonly nodes: ReadonlyMap<NodeId, IndexedNode>;
  readonly ledger: Ledger;
  startRun(request: FullRequest): PlacementRun;
}

/** Reads the nodes and reservations of a cluster for preemption. */
export class ClusterPreemptionSource implements PreemptionSource {
  constructor(private readonly parts: PreemptionClusterParts) {}

  nodeIds(): Iterable<NodeId> {
    return this.parts.nodes.keys();
  }

  node(nodeId: NodeId): PreemptionNode | undefined {
    const node = this.parts.nodes.get(nodeId);
    if (node === undefined) return undefined;
    const { allocatable, maxReplicas } = node;
    return { allocatable, maxReplicas, zoneKey: zoneKeyOf(node) };
  }

  reservationsOn(nodeId: NodeId): readonly HeldReservation[] {
    return this.parts.ledger.reservationsOn(nodeId);
  }

  dependsOnReplicas(request: FullRequest): boolean {
    return (
      request.spread?.mode === 'required' ||
      [...request.workloadAffinity, ...request.workloadAntiAffinity].some(
        ({ mode }) => mode === 'required',
      ) ||
      this.parts.ledger.hasRepellingGroups
    );
  }

  createEligibility(request: FullRequest): (nodeId: NodeId) => boolean {
    const { nodes } = this.parts;
    if (this.dependsOnReplicas(request)) return this.createRunEligibility(request);
    return (nodeId) => {
      const node = nodes.get(nodeId);
      return node !== undefined && findNodeFailure({ node }, { request }) === undefined;
    };
  }

  isEligibleWithout(
    request: FullRequest,
    nodeId: NodeId,
    victims: ReadonlySet<ReplicaId>,
  ): boolean {
    return this.parts.ledger.without(victims, () => this.createRunEligibility(request)(nodeId));
  }

  countStaying(workloadId: WorkloadId): ReadonlyMap<NodeId, number> {
    return this.parts.ledger.countStaying(workloadId);
  }

  private createRunEligibility(request: FullRequest): (nodeId: NodeId) => boolean {
    const run = this.parts.startRun(request);
    const eligible = new Set(
      run.candidates
        .filter((candidate) => findFailureBesidesCapacity(candidate, run) === undefined)
        .map(({ node }) => node.id),
    );
    return (nodeId) => eligible.has(nodeId);
  }
}
