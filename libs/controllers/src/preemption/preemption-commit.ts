import { clone } from '@bufbuild/protobuf';
import { Event_Category as Category, Event_Severity as Severity } from '@cloudless/api';
import { ControlRecordSchema, type ReplicaRecord, type WorkloadRecord } from '@cloudless/api/store';
import {
  copyReplica,
  getNextOrderRevision,
  type ClusterView,
  type Stored,
  type Transaction,
} from '@cloudless/cluster-state';
import { formatReplicaCount } from '@cloudless/rollout';
import type { Preemption, VictimCandidate } from '@cloudless/scheduler';
import type { DisruptionBudgets } from './disruption-budget.js';
import { PREEMPTED_BY, isNominated } from './nominations.js';

/** A decision to preempt, with the records that it rests on. */
export interface DecidedPreemption {
  readonly view: ClusterView;
  readonly workload: WorkloadRecord;
  readonly priority: number;
  readonly replica: Stored<ReplicaRecord>;
  readonly preemption: Preemption;
  readonly budgets: DisruptionBudgets;
}

/**
 * Most conditions and writes of a transaction that preempts, within the 100 of a store. The victims
 * of a larger set are evicted by several transactions; the nomination holds what the first frees.
 */
const MAX_OPERATIONS = 90;
/** Conditions of a victim's workload: control record, workload, readiness guard; and its event. */
const OPERATIONS_OF_WORKLOAD = 4;

/** Result of {@link addPreemption}. */
export interface AddedPreemption {
  /** Number of replicas that are ordered to stop. */
  readonly stopped: number;
  /** False when a further transaction has to evict the rest of the victims. */
  readonly isComplete: boolean;
}

/**
 * Adds a preemption to a transaction: the nomination of the waiting replica, and for each victim the
 * stop order. A stop of a replica rewrites the control record of its workload, as every voluntary
 * stop does, so that rollouts, drains and preemptions cannot use one permit twice.
 */
export function addPreemption(
  transaction: Transaction,
  decided: DecidedPreemption,
): AddedPreemption {
  const { view, replica, preemption } = decided;
  const { nodeId } = preemption;
  const node = view.node(nodeId);
  // A node that was cordoned, changed or removed since the decision may be no choice any more.
  if (node !== undefined) transaction.require('node', nodeId, node);
  const stopped: ReplicaRecord[] = [];
  const touched = new Set<string>();
  let operations = 4;
  let isComplete = true;
  for (const { replicaId, workloadId } of preemption.victims) {
    const victim = view.replica(replicaId);
    if (victim === undefined) continue;
    const isFirst = !isNominated(victim.value) && !touched.has(workloadId);
    operations += isFirst ? OPERATIONS_OF_WORKLOAD + 1 : 1;
    if (operations > MAX_OPERATIONS) {
      isComplete = false;
      break;
    }
    if (isNominated(victim.value)) takeNomination(transaction, decided, victim);
    else {
      stopVictim(transaction, decided, victim);
      stopped.push(victim.value);
      touched.add(workloadId);
    }
  }
  for (const uid of touched) requireBudget(transaction, decided, uid);
  addEvents(transaction, decided, stopped);
  transaction.updateReplica(
    replica,
    copyReplica(replica.value, { nominatedNodeId: nodeId, reason: describeWait(nodeId, stopped) }),
  );
  return { stopped: stopped.length, isComplete };
}

function takeNomination(
  transaction: Transaction,
  { workload, priority, preemption }: DecidedPreemption,
  nominated: Stored<ReplicaRecord>,
): void {
  transaction.updateReplica(
    nominated,
    copyReplica(nominated.value, {
      nominatedNodeId: '',
      reason: `its place on node ${preemption.nodeId} went to ${nameOf(workload)} of priority ${priority}`,
    }),
  );
}

function describeWait(nodeId: string, stopped: readonly ReplicaRecord[]): string {
  return stopped.length === 0
    ? `waits for replicas on node ${nodeId} to stop; its resources there are held`
    : `waits on node ${nodeId} until ${formatReplicaCount(stopped.length)} of lower priority ${stopped.length === 1 ? 'has' : 'have'} stopped`;
}

function stopVictim(
  transaction: Transaction,
  { view, workload, priority }: DecidedPreemption,
  victim: Stored<ReplicaRecord>,
): void {
  transaction.updateReplica(
    victim,
    copyReplica(victim.value, {
      desiredRunning: false,
      stopReason: `${PREEMPTED_BY}${nameOf(workload)} of priority ${priority}`,
      orderRevision: getNextOrderRevision(view, victim.value),
    }),
  );
}

/** Requires everything that the budget of a workload rests on. */
function requireBudget(transaction: Transaction, { view }: DecidedPreemption, uid: string): void {
  const workload = view.workload(uid);
  const control = view.control(uid);
  if (workload === undefined || control === undefined) return;
  transaction
    .require('control', uid, control)
    .put('control', uid, clone(ControlRecordSchema, control.value))
    .require('workload', uid, workload)
    .require('evidence', uid, view.readinessGuard(uid) ?? 'absent');
}

function addEvents(
  transaction: Transaction,
  decided: DecidedPreemption,
  stopped: readonly ReplicaRecord[],
): void {
  const { view, workload, priority, replica, preemption, budgets } = decided;
  const { nodeId } = preemption;
  const decisionId = `preempt/${workload.uid}@${view.revision}`;
  const byWorkload = groupByWorkload(stopped);
  const owners = [...byWorkload].map(
    ([uid, replicas]) => `${replicas.length} of ${nameOf(view.workload(uid)?.value)}`,
  );
  const why =
    stopped.length === 0
      ? `the replicas that are stopping there make enough room`
      : `no node has room; the lowest priorities and fewest replicas to evict are on node ${nodeId}: ${owners.join(', ')}`;
  const nomination = {
    severity: Severity.INFO,
    category: Category.SCHEDULING,
    reason: 'ReplicaNominated',
    message: `a replica waits for node ${nodeId}, which holds resources for it: ${why}`,
    namespace: workload.namespace,
    workload: workload.name,
    replicaIds: [replica.value.id],
    replicaId: replica.value.id,
    nodeId,
    decision: { id: decisionId, why },
    causedBy: view.lastEventOfReplica(replica.value.id),
  };
  transaction.event(nomination);
  for (const [uid, replicas] of byWorkload) {
    const owner = view.workload(uid)?.value;
    const { available, minAvailable, evictabilityOf } = budgets.of(uid);
    const left = available - replicas.filter(({ id }) => evictabilityOf(id) === 'counted').length;
    const [first] = replicas;
    const victimWhy = `${nameOf(workload)} of priority ${priority} needs the resources, and this workload has priority ${priorityOf(preemption.victims, uid)}; ${left} available ${left === 1 ? 'replica remains' : 'replicas remain'}, min_available is ${minAvailable}`;
    transaction.event({
      severity: Severity.WARNING,
      category: Category.SCHEDULING,
      reason: 'ReplicaPreempted',
      message: `${formatReplicaCount(replicas.length)} on node ${nodeId} preempted: ${victimWhy}`,
      namespace: owner?.namespace ?? '',
      workload: owner?.name ?? '',
      replicaIds: replicas.map(({ id }) => id),
      ...(replicas.length === 1 ? { replicaId: first?.id ?? '' } : {}),
      nodeId,
      decision: { id: decisionId, why: victimWhy },
      causedBy: nomination,
    });
  }
}

function groupByWorkload(
  replicas: readonly ReplicaRecord[],
): ReadonlyMap<string, readonly ReplicaRecord[]> {
  const groups = new Map<string, ReplicaRecord[]>();
  for (const replica of replicas)
    groups.set(replica.uid, [...(groups.get(replica.uid) ?? []), replica]);
  return groups;
}

function priorityOf(victims: readonly VictimCandidate[], uid: string): number {
  return Math.max(
    ...victims.filter(({ workloadId }) => workloadId === uid).map(({ priority }) => priority),
  );
}

function nameOf(workload: Pick<WorkloadRecord, 'namespace' | 'name'> | undefined): string {
  return workload === undefined ? 'a deleted workload' : `${workload.namespace}/${workload.name}`;
}
