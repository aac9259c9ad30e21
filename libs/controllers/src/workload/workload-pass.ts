import type { EvidenceRecord } from '@cloudless/api/store';
import type { ClusterState, Stored } from '@cloudless/cluster-state';
import { copyControl } from '../common/control-copy.js';
import type { RolloutPass } from '../rollout/rollout-pass.js';
import type { CountedWaiting } from './many-waiting.js';

/** The input of one pass over a workload, and the transaction that the pass fills. */
export interface WorkloadPass extends RolloutPass {
  /** Id that the events and the log line of the decision of this pass share. */
  readonly decisionId: string;
  /** The readiness guard, which changes when a replica of the workload stops being ready. */
  readonly readinessGuard: Stored<EvidenceRecord> | 'absent';
  /** True when a user has requested the deletion of the workload. */
  readonly deleting: boolean;
  /** Waiting replicas that `replicas` leaves out. Default: none. */
  readonly waiting?: CountedWaiting;
}

/**
 * Most replica writes of a pass. Leaves room for events, versions and the control record in the 100
 * writes of a transaction.
 */
export const MAX_REPLICA_WRITES = 60;

/** Creates a pass over a workload, on the current view, with an empty transaction. */
export function createWorkloadPass(
  state: ClusterState,
  subject: Pick<WorkloadPass, 'workload' | 'control' | 'replicas' | 'deleting' | 'waiting'>,
): WorkloadPass {
  const view = state.view();
  const { uid } = subject.workload.value;
  return {
    ...subject,
    view,
    decisionId: `rollout/${uid}@${view.revision}`,
    readinessGuard: view.readinessGuard(uid) ?? 'absent',
    versions: view.versions(uid),
    transaction: state.transaction(),
    nextControl: copyControl(subject.control.value),
  };
}
