import {
  Event_Category as Category,
  Event_Severity as Severity,
  ReplicaStatus_Phase as Phase,
} from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import { copyReplica, isLive, isTombstone, type Stored } from '@cloudless/cluster-state';
import { countFailures } from '../rollout/rollout-failure.js';
import { isFinished, isFinishedOfActiveVersion } from '../replica/finished.js';
import type { SlotBackoffs } from './slot-backoff.js';
import { MAX_REPLICA_WRITES, type WorkloadPass } from './workload-pass.js';

/**
 * Deletes the records of replicas that have stopped as ordered, and retires failed replicas: their
 * slots enter back-off, and replacements follow. Adds at most {@link MAX_REPLICA_WRITES} writes;
 * the next pass handles the rest.
 * @param getLastReadyMs - Returns for how many milliseconds a replica was ready before it last
 *   stopped being ready.
 */
export function retireEndedReplicas(
  pass: WorkloadPass,
  backoffs: SlotBackoffs,
  getLastReadyMs: (replicaId: string) => number,
): void {
  const { transaction, deleting } = pass;
  const ended = pass.replicas.filter(({ value }) => !isLive(value) && !isTombstone(value));
  if (ended.length === 0) return;
  const newestFailed = findNewestFailedBySlot(pass);
  for (const replica of ended) {
    if (transaction.size >= MAX_REPLICA_WRITES) return;
    const { value } = replica;
    const { view, workload, nextControl } = pass;
    const finishedOfActiveVersion = isFinishedOfActiveVersion(
      view,
      workload.value,
      nextControl.activeVersion,
      value,
    );
    const finished = finishedOfActiveVersion || isFinished(view, workload.value, value);
    if (value.phase === Phase.STOPPED || deleting) {
      // A replica that stopped without an order counts as a failure: its successor may stop in the
      // same way.
      if (value.desiredRunning && !deleting)
        backoffs.recordFailure(value.slot, getLastReadyMs(value.id));
      deleteReplicaRecord(pass, replica);
    } else if (value.phase === Phase.FAILED && value.desiredRunning && !finished) {
      backoffs.recordFailure(value.slot, getLastReadyMs(value.id));
      transaction.updateReplica(
        replica,
        copyReplica(value, { desiredRunning: false, stopReason: value.reason }),
      );
      transaction.event(createFailedEvent(pass, value));
    } else if (finished ? !value.desiredRunning : isDeletable(value, newestFailed)) {
      deleteReplicaRecord(pass, replica);
    }
  }
}

/**
 * Deletes the record of a replica. Its failures still count against the rollout that created it.
 */
export function deleteReplicaRecord(
  { transaction, nextControl, view }: WorkloadPass,
  replica: Stored<ReplicaRecord>,
): void {
  const { rollout } = nextControl;
  if (rollout !== undefined) rollout.failedGone += countFailures({ view, rollout }, replica.value);
  transaction.deleteReplica(replica);
}

/**
 * Returns true for an ended replica that can be deleted. The newest failed replica of each slot is
 * kept for diagnosis.
 */
function isDeletable(replica: ReplicaRecord, newestFailed: ReadonlyMap<number, bigint>): boolean {
  return (
    replica.phase === Phase.SUCCEEDED || replica.sequence < (newestFailed.get(replica.slot) ?? 0n)
  );
}

function findNewestFailedBySlot({ replicas }: WorkloadPass): ReadonlyMap<number, bigint> {
  const failed = replicas.filter(({ value }) => value.phase === Phase.FAILED);
  return new Map(failed.map(({ value }) => [value.slot, value.sequence]));
}

function createFailedEvent(
  { workload, view }: WorkloadPass,
  { id, reason, nodeId }: ReplicaRecord,
) {
  return {
    severity: Severity.WARNING,
    category: Category.WORKLOAD,
    reason: 'ReplicaFailed',
    message: `replica ${id} failed: ${reason}`,
    namespace: workload.value.namespace,
    workload: workload.value.name,
    replicaId: id,
    nodeId,
    causedBy: view.lastEventOfReplica(id),
  };
}
