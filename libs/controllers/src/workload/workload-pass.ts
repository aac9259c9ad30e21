import type { EvidenceRecord } from '@cloudless/api/store';
import type { Stored } from '@cloudless/cluster-state';
import type { CountedWaiting } from './many-waiting.js';
import type { RolloutPass } from '../rollout/rollout-pass.js';

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
