import { ReplicaStatus_Phase as Phase, RestartPolicy_Policy as RestartMode } from '@cloudless/api';
import type {
  ControlRecord,
  EvidenceRecord,
  ReplicaRecord,
  VersionRecord,
  WorkloadRecord,
} from '@cloudless/api/store';
import {
  canonicalVersion,
  type ClusterView,
  type Stored,
  type Transaction,
} from '@cloudless/cluster-state';
import type { CauseView } from './causes.js';

/** What one pass over a workload reads, and what it is going to commit. */
export interface WorkloadPass {
  /** What it was planned on. */
  readonly view: CauseView & Pick<ClusterView, 'version'>;
  readonly workload: Stored<WorkloadRecord>;
  readonly control: Stored<ControlRecord>;
  /** Changes when a replica of the workload stops being ready. */
  readonly evidence: Stored<EvidenceRecord> | 'absent';
  /** Those that are kept, ascending. */
  readonly versions: readonly VersionRecord[];
  /** By sequence. */
  readonly replicas: readonly Stored<ReplicaRecord>[];
  readonly transaction: Transaction;
  /** The control record as it will be; changed in place. */
  readonly next: ControlRecord;
  readonly deleting: boolean;
}

/**
 * A pass stops adding replicas here, so that events, versions and the control record still fit into
 * the 100 of a transaction.
 */
export const MAX_REPLICA_WRITES = 60;
/** All writes of a pass but the last few: events and the control record. */
export const MAX_PASS_WRITES = 90;

/** The reason of a replica that no placement has looked at yet. */
export const WAITS_FOR_A_NODE = 'waits for a node';

/** It has run to its end for good: it counts as one of the wanted replicas and is not replaced. */
export function isFinal(
  view: Pick<ClusterView, 'version'>,
  workload: WorkloadRecord,
  replica: ReplicaRecord,
): boolean {
  return hasEnded(view, workload, workload.version, replica);
}

/**
 * It has run to its end with the version that is active while another one is rolled out: where that
 * rollout keeps replicas of the active version, it counts as one of them and is not run again.
 */
export function isFormerFinal(
  view: Pick<ClusterView, 'version'>,
  workload: WorkloadRecord,
  activeVersion: number,
  replica: ReplicaRecord,
): boolean {
  return (
    activeVersion !== 0 &&
    replica.desiredRunning &&
    !isFinal(view, workload, replica) &&
    hasEnded(view, workload, activeVersion, replica)
  );
}

function hasEnded(
  view: Pick<ClusterView, 'version'>,
  { uid, spec }: WorkloadRecord,
  version: number,
  replica: ReplicaRecord,
): boolean {
  if (
    replica.lost ||
    canonicalVersion(view, uid, replica.version) !== canonicalVersion(view, uid, version)
  )
    return false;
  const never = spec?.restart?.policy === RestartMode.NEVER;
  return replica.phase === Phase.SUCCEEDED || (replica.phase === Phase.FAILED && never);
}

/** How many replicas are still to run: those wanted without those that have run to their end. */
export function stillWanted(
  view: Pick<ClusterView, 'version'>,
  workload: WorkloadRecord,
  replicas: readonly ReplicaRecord[],
  wanted: number,
): number {
  const final = replicas.filter(
    (replica) => replica.desiredRunning && isFinal(view, workload, replica),
  );
  return Math.max(0, wanted - final.length);
}
