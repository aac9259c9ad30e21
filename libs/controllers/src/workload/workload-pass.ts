import { ReplicaStatus_Phase as Phase, RestartPolicy_Policy as RestartMode } from '@cloudless/api';
import type {
  ControlRecord,
  EvidenceRecord,
  ReplicaRecord,
  VersionRecord,
  WorkloadRecord,
} from '@cloudless/api/store';
import {
  toCanonicalVersion,
  type ClusterView,
  type Stored,
  type Transaction,
} from '@cloudless/cluster-state';
import type { EventView } from '../causes.js';

/** The input of one pass over a workload, and the transaction that the pass fills. */
export interface WorkloadPass {
  /** The view at the begin of the pass. */
  readonly view: EventView & Pick<ClusterView, 'version'>;
  readonly workload: Stored<WorkloadRecord>;
  readonly control: Stored<ControlRecord>;
  /** The readiness guard: changes when a replica of the workload stops being ready. */
  readonly readinessGuard: Stored<EvidenceRecord> | 'absent';
  /** The versions that still have a record, ascending. */
  readonly versions: readonly VersionRecord[];
  /** Ascending by sequence. */
  readonly replicas: readonly Stored<ReplicaRecord>[];
  readonly transaction: Transaction;
  /** The control record as the pass will write it. Changed in place. */
  readonly nextControl: ControlRecord;
  readonly deleting: boolean;
}

/**
 * Most replica writes of a pass. Leaves room for events, versions and the control record in the 100
 * writes of a transaction.
 */
export const MAX_REPLICA_WRITES = 60;
/** Most writes of a pass, without the final events and the control record. */
export const MAX_PASS_WRITES = 90;

/** The reason of a replica that the placer has not tried to place yet. */
export const WAITS_FOR_NODE = 'waits for a node';

/**
 * Tells whether a replica has finished for good: SUCCEEDED, or FAILED under restart policy NEVER,
 * with the wanted template. Such a replica counts as one of the wanted replicas and is not
 * replaced.
 */
export function isFinished(
  view: Pick<ClusterView, 'version'>,
  workload: WorkloadRecord,
  replica: ReplicaRecord,
): boolean {
  return isFinishedOfVersion(view, workload, workload.version, replica);
}

/**
 * Tells whether a replica has finished for good with the active version while another version is
 * rolled out. Where that rollout keeps replicas of the active version, the replica counts as one of
 * them and is not replaced.
 */
export function isFinishedOfActiveVersion(
  view: Pick<ClusterView, 'version'>,
  workload: WorkloadRecord,
  activeVersion: number,
  replica: ReplicaRecord,
): boolean {
  return (
    activeVersion !== 0 &&
    replica.desiredRunning &&
    !isFinished(view, workload, replica) &&
    isFinishedOfVersion(view, workload, activeVersion, replica)
  );
}

function isFinishedOfVersion(
  view: Pick<ClusterView, 'version'>,
  { uid, spec }: WorkloadRecord,
  version: number,
  replica: ReplicaRecord,
): boolean {
  if (
    replica.lost ||
    toCanonicalVersion(view, uid, replica.version) !== toCanonicalVersion(view, uid, version)
  )
    return false;
  const never = spec?.restart?.policy === RestartMode.NEVER;
  return replica.phase === Phase.SUCCEEDED || (replica.phase === Phase.FAILED && never);
}

/** The number of replicas that have to run: the wanted count minus the finished replicas. */
export function countStillWanted(
  view: Pick<ClusterView, 'version'>,
  workload: WorkloadRecord,
  replicas: readonly ReplicaRecord[],
  wanted: number,
): number {
  const finished = replicas.filter(
    (replica) => replica.desiredRunning && isFinished(view, workload, replica),
  );
  return Math.max(0, wanted - finished.length);
}
