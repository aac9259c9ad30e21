import { ReplicaStatus_Phase as Phase, RestartPolicy_Policy as RestartMode } from '@cloudless/api';
import type { ControlRecord, ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import type { Stored, Transaction } from '@cloudless/cluster-state';
import type { CauseView } from './causes.js';

/** What one pass over a workload reads, and what it is going to commit. */
export interface WorkloadPass {
  /** What it was planned on. */
  readonly view: CauseView;
  readonly workload: Stored<WorkloadRecord>;
  readonly control: Stored<ControlRecord>;
  /** By sequence. */
  readonly replicas: readonly Stored<ReplicaRecord>[];
  readonly transaction: Transaction;
  /** The control record as it will be; changed in place. */
  readonly next: ControlRecord;
  readonly deleting: boolean;
}

/** A pass stops adding replicas here, so that events, versions and the control record still fit into the 100 of a transaction. */
export const MAX_REPLICA_WRITES = 60;
/** All writes of a pass but the last few: events and the control record. */
export const MAX_PASS_WRITES = 90;

/** It has run to its end for good: it counts as one of the wanted replicas and is not replaced. */
export function isFinal(workload: WorkloadRecord, replica: ReplicaRecord): boolean {
  if (replica.version !== workload.version || replica.lost) return false;
  const never = workload.spec?.restart?.policy === RestartMode.NEVER;
  return replica.phase === Phase.SUCCEEDED || (replica.phase === Phase.FAILED && never);
}

/** How many replicas are still to run: those wanted without those that have run to their end. */
export function stillWanted(workload: WorkloadRecord, replicas: readonly ReplicaRecord[], wanted: number): number {
  const final = replicas.filter((replica) => replica.desiredRunning && isFinal(workload, replica));
  return Math.max(0, wanted - final.length);
}
