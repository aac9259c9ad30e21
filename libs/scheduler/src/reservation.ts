import type { NodeId, ReplicaId, WorkloadId } from '@cloudless/base';
import { checkHostPorts, type HostPort } from './host-ports.js';
import type { Labels } from './labels.js';
import { Problems } from './problems.js';
import { checkWorkloadTerms, type WorkloadTerm } from './request.js';
import { checkAmounts, type ResourceAmounts } from './resources.js';

/** What one live replica holds of its node, and what others need to know of it. */
export interface Reservation {
  readonly replicaId: ReplicaId;
  readonly nodeId: NodeId;
  readonly workloadId: WorkloadId;
  readonly namespace: string;
  /** The workload's labels. */
  readonly labels?: Labels;
  readonly resources: ResourceAmounts;
  /** Ports of the node that it holds, until it is released like all else. */
  readonly hostPorts?: readonly HostPort[];
  /**
   * The workload's anti-affinity. Its required terms also keep newcomers that they describe away
   * from this replica; preferred ones are not looked at.
   */
  readonly workloadAntiAffinity?: readonly WorkloadTerm[];
  /**
   * It is being stopped. It holds its resources and its place and keeps repelling until it is
   * released, but it does not count for spread and attracts nothing. Default false.
   */
  readonly leaving?: boolean;
}

/** @throws InvalidInputError naming every field that makes no sense. */
export function checkReservation(reservation: Reservation): void {
  const problems = new Problems();
  problems.notEmpty('replicaId', reservation.replicaId);
  problems.notEmpty('nodeId', reservation.nodeId);
  problems.notEmpty('workloadId', reservation.workloadId);
  checkAmounts(problems, 'resources', reservation.resources);
  checkHostPorts(problems, 'hostPorts', reservation.hostPorts ?? []);
  checkWorkloadTerms(problems, 'workloadAntiAffinity', reservation.workloadAntiAffinity ?? []);
  problems.throwIfAny();
}
