import type { NodeId, ReplicaId, WorkloadId } from '@cloudless/base';
import { checkHostPorts, type SchedulerHostPort } from './host-ports.js';
import type { LabelMap, Labels } from './labels.js';
import { Problems } from './problems.js';
import { checkWorkloadTerms, type WorkloadTerm } from './request.js';
import { checkAmounts, type ResourceAmounts, type Resources } from './resources.js';

/**
 * Resources that one replica holds on its node, and the properties that placements of other
 * replicas consider.
 */
export interface Reservation {
  readonly replicaId: ReplicaId;
  readonly nodeId: NodeId;
  readonly workloadId: WorkloadId;
  readonly namespace: string;
  /** The workload's labels. */
  readonly labels?: Labels;
  readonly resources: ResourceAmounts;
  /** Host ports that the replica holds until the reservation is released. */
  readonly hostPorts?: readonly SchedulerHostPort[];
  /**
   * Anti-affinity terms of the workload. Required terms exclude replicas that they match from this
   * replica's domain; preferred terms are ignored.
   */
  readonly workloadAntiAffinity?: readonly WorkloadTerm[];
  /**
   * True while the replica is being stopped. The replica keeps its resources, and its anti-affinity
   * still applies, until the reservation is released. It does not count for spread and does not
   * satisfy affinity terms. Default: false.
   */
  readonly leaving?: boolean;
  /**
   * Priority of the replica, 0 to 1000. Placement ignores the priority; preemption reads it.
   * Default: {@link DEFAULT_PRIORITY}.
   */
  readonly priority?: number;
}

/** Common part of the reservations of equal replicas. */
export type ReservationTemplate = Omit<Reservation, 'replicaId' | 'nodeId'>;

/** A replica and its node. */
export type ReplicaOnNode = Pick<Reservation, 'replicaId' | 'nodeId'>;

/** A reservation with all defaults filled in, as the cluster holds it. */
export interface HeldReservation {
  readonly replicaId: ReplicaId;
  readonly nodeId: NodeId;
  readonly workloadId: WorkloadId;
  readonly namespace: string;
  readonly labels: LabelMap;
  readonly resources: Resources;
  /** Sorted, without duplicates. */
  readonly hostPorts: readonly SchedulerHostPort[];
  readonly leaving: boolean;
  readonly priority: number;
}

/** Priority of a reservation and a request that name none. */
export const DEFAULT_PRIORITY = 50;

/**
 * Checks reservations of equal replicas.
 * @throws InvalidInputError naming every invalid field.
 */
export function checkReservations(
  template: ReservationTemplate,
  replicas: readonly ReplicaOnNode[],
): void {
  const problems = new Problems();
  for (const { replicaId, nodeId } of replicas) {
    problems.requireNotEmpty('replicaId', replicaId);
    problems.requireNotEmpty('nodeId', nodeId);
  }
  problems.requireNotEmpty('workloadId', template.workloadId);
  checkAmounts(problems, 'resources', template.resources);
  checkHostPorts(problems, 'hostPorts', template.hostPorts ?? []);
  problems.requireWholeNumber('priority', template.priority ?? DEFAULT_PRIORITY, 0, 1000);
  checkWorkloadTerms(problems, 'workloadAntiAffinity', template.workloadAntiAffinity ?? []);
  problems.throwIfAny();
}
