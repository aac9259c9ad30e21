import { withDefaults } from '@cloudless/api';
import type { VersionInfo, Workload, WorkloadStatus } from '@cloudless/api';
import { formatCount, formatDuration } from '../output/human.js';
import { toOneLine } from '../output/table.js';

/** Numbers of replicas of a workload during a rollout. */
export interface RolloutCounts {
  readonly desired: number;
  /** Replicas of the newest version that are not leaving. */
  readonly updated: number;
  /** Ready replicas among `updated`. */
  readonly updatedReady: number;
  /** Replicas of other versions, and leaving replicas. */
  readonly old: number;
  readonly ready: number;
  /** Minimum of available replicas that voluntary stops keep. */
  readonly minimum: number;
}

/**
 * Counts the replicas in the status of a workload. A replica of an older version with the same
 * template counts as updated.
 */
export function countRollout({ status }: Workload): RolloutCounts {
  const updated = status?.updatedReplicas ?? 0;
  return {
    desired: status?.desiredReplicas ?? 0,
    updated,
    updatedReady: status === undefined ? 0 : countUpdatedReady(status),
    old: Math.max(0, (status?.totalReplicas ?? 0) - updated),
    ready: status?.readyReplicas ?? 0,
    minimum: status?.minAvailable ?? 0,
  };
}

/** Counts the listed replicas, as earlier coordinators send no number, unless some are omitted. */
function countUpdatedReady(status: WorkloadStatus): number {
  const { replicas, omittedReplicas, versions } = status;
  if (omittedReplicas > 0) return status.updatedReadyReplicas;
  const newestVersion = findCanonicalVersion(versions, status.version);
  return replicas.filter(
    ({ version, ready, leaving }) =>
      ready && !leaving && findCanonicalVersion(versions, version) === newestVersion,
  ).length;
}

/** Returns the oldest version with the same template as `version`. */
function findCanonicalVersion(versions: readonly VersionInfo[], version: number): number {
  return versions.find((info) => info.version === version)?.sameAs || version;
}

/**
 * Describes the counts: `5 of 9 ready`, in a rollout `5 of 5 ready, 1 extra, 3 updated, 3 old`, after
 * a scale-down `2 of 2 ready, 1 stopping`, after a scaling to 0 `2 replicas still stopping`.
 */
export function describeCounts(workload: Workload): string {
  const { desired, updated, old, ready } = countRollout(workload);
  const total = workload.status?.totalReplicas ?? 0;
  if (desired === 0 && total > 0) return `${formatCount(total, 'replica')} still stopping`;
  const { rollout, versions = [] } = workload.status ?? {};
  const hasOldVersion = (rollout?.fromVersion ?? 0) > 0 || versions.length > 1;
  const isRolling = hasOldVersion && old > 0;
  const oldText = isRolling ? `${old} old` : `${old} stopping`;
  return [
    `${Math.min(ready, desired)} of ${desired} ready`,
    ready > desired ? `${ready - desired} extra` : '',
    isRolling ? `${updated} updated` : '',
    old > 0 ? oldText : '',
  ]
    .filter((part) => part !== '')
    .join(', ');
}

/** Returns the completed share of a rollout or scaling, from 0 to 1. */
export function getFraction(workload: Workload): number {
  const { desired, updatedReady } = countRollout(workload);
  return desired === 0 ? 0 : Math.min(1, updatedReady / desired);
}

/** Reason of the coordinator while all replicas are ready, some for less than min_ready_duration. */
const SETTLING = 'settling';
/** Matches reasons, or starts of reasons, that only repeat counts. */
const COUNTS =
  /^(?:\d+ of \d+ replicas are ready, \d+ (?:extra )?not yet(?: \(\d+ extra\))?$|\d+ of \d+ ready: )/;

/**
 * Returns why a workload is not complete, without counts that {@link describeCounts} shows: `settling
 * (2s)` while ready replicas wait for min_ready_duration. Empty without a reason.
 */
export function getWaitReason({ spec, status }: Workload): string {
  const reason = (status?.reason || status?.rollout?.reason || '').replace(COUNTS, '');
  if (reason !== SETTLING) return reason;
  const duration = spec === undefined ? undefined : withDefaults(spec).rollout?.minReadyDuration;
  return duration === undefined ? SETTLING : `${SETTLING} (${formatDuration(duration)})`;
}

/** Describes the counts and the reason of a workload that is not complete, on one line. */
export function describeProgress(workload: Workload): string {
  const reason = toOneLine(getWaitReason(workload));
  const counts = describeCounts(workload);
  // After a scaling to 0, the coordinator gives the same count as its reason.
  if (reason === '' || reason === counts) return counts;
  return `${counts}${reason.startsWith(SETTLING) ? ', ' : ': '}${reason}`;
}
