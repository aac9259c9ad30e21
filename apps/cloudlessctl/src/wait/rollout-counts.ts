import type { VersionInfo, Workload } from '@cloudless/api';

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
  const newestVersion = findCanonicalVersion(status?.versions ?? [], status?.version ?? 0);
  const updatedReady = (status?.replicas ?? []).filter(
    ({ version, ready, leaving }) =>
      ready && !leaving && findCanonicalVersion(status?.versions ?? [], version) === newestVersion,
  ).length;
  const updated = status?.updatedReplicas ?? 0;
  return {
    desired: status?.desiredReplicas ?? 0,
    updated,
    updatedReady,
    old: Math.max(0, (status?.totalReplicas ?? 0) - updated),
    ready: status?.readyReplicas ?? 0,
    minimum: status?.minAvailable ?? 0,
  };
}

/** Returns the oldest version with the same template as `version`. */
function findCanonicalVersion(versions: readonly VersionInfo[], version: number): number {
  return versions.find((info) => info.version === version)?.sameAs || version;
}

/**
 * Rounds a count for progress lines, so that a large workload prints at most about 10 lines.
 * @returns The count itself when the total is at most 10, otherwise the number of full tenths.
 */
export function roundCount(count: number, total: number): number {
  return total <= 10 ? count : Math.floor((count * 10) / total);
}

/**
 * Selects the states for which a line of progress is printed: more updated replicas are ready than
 * before, or phase, step, version or reason are new. Counts that fluctuate are ignored.
 */
export class MilestoneFilter {
  /** Highest rounded number of updated ready replicas so far. */
  private best = -1;
  /** Combinations of phase, step, version and reason that have had a line. */
  private readonly reported = new Set<string>();

  /**
   * Returns true when a line is printed for a state. Records the state.
   * @param reason - Reason why the workload is not complete. Numbers and replica ids in the reason
   *   are ignored.
   */
  isMilestone(workload: Workload, reason: string): boolean {
    const { updatedReady, desired } = countRollout(workload);
    const reached = roundCount(updatedReady, desired);
    const { phase = 0, step = 0, version = 0 } = workload.status?.rollout ?? {};
    const kind = [phase, step, version, reason.replaceAll(/\b[0-9a-f]{16}-\d+\b|\d+/g, '#')].join(
      '|',
    );
    const isMilestone = reached > this.best || !this.reported.has(kind);
    this.best = Math.max(this.best, reached);
    this.reported.add(kind);
    return isMilestone;
  }
}
