import type { ReplicaRecord } from '@cloudless/api/store';
import type { RecordChange } from '@cloudless/cluster-state';

/** A replica before and after a commit; undefined when the replica did not or does not exist. */
interface ReplicaChange {
  readonly before: ReplicaRecord | undefined;
  readonly after: ReplicaRecord | undefined;
}

/** Returns the replicas that a commit created. */
export function createdReplicas(changes: readonly RecordChange[]): readonly ReplicaRecord[] {
  return findReplicaChanges(changes).flatMap(({ before, after }) =>
    before === undefined && after !== undefined ? [after] : [],
  );
}

/** Returns the replicas that a commit created, changed or deleted. */
export function findReplicaChanges(changes: readonly RecordChange[]): readonly ReplicaChange[] {
  return changes
    .filter(({ kind }) => kind === 'replica')
    .map(({ before, after }) => ({
      before: before as ReplicaRecord | undefined,
      after: after as ReplicaRecord | undefined,
    }));
}

/** Returns the replicas that a commit preempts, as they are after the commit. */
export function findPreempted(changes: readonly RecordChange[]): readonly ReplicaRecord[] {
  return findReplicaChanges(changes).flatMap(({ before, after }) =>
    before?.desiredRunning === true &&
    after?.desiredRunning === false &&
    after.stopReason.startsWith('preempted by ')
      ? [after]
      : [],
  );
}
