import type { VersionInfo, Workload } from '@cloudless/api';

/** Numbers of replicas of a workload during a rollout. */
export interface RolloutCounts {
  readonly desired: number;
  /** Replicas of the newest version that are not leaving. */
  readonly updated: number;
  readonly updatedReady: number;
  /** Replicas of other versions, and leaving replicas. */
  readonly old: number;
  readonly ready: number;
  /** Minimum of available replicas that voluntary stops keep. */
  readonly minimum: number;
}

/** Counts the replicas in the status of a workload. */
export function countRollout({ status }: Workload): RolloutCounts {
  const wanted = findCanonicalVersion(status?.versions ?? [], status?.version ?? 0);
  const updatedReady = (status?.replicas ?? []).filter(
    ({ version, ready, leaving }) =>
      ready && !leaving && findCanonicalVersion(status?.versions ?? [], version) === wanted,
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

/** Returns the oldest version with the same template; replicas of both versions are equivalent. */
function findCanonicalVersion(versions: readonly VersionInfo[], version: number): number {
  return versions.find((info) => info.version === version)?.sameAs || version;
}

/**
 * Rounds a count for progress lines: the count itself up to 10 replicas, tenths of the total above.
 */
export function roundCount(count: number, of: number): number {
  return of <= 10 ? count : Math.floor((count * 10) / of);
}

/**
 * Selects the states that are worth a line of progress: more updated replicas ready than before,
 * another phase or step, or a new reason. Counts that fluctuate are ignored.
 */
export class MilestoneFilter {
  private best = -1;
  private readonly reported = new Set<string>();

  /**
   * Returns true when a state is worth a line.
   * @param reason - Why the workload is not complete; numbers and replica ids in it are ignored.
   */
  isMilestone(workload: Workload, reason: string): boolean {
    const { updatedReady, desired } = countRollout(workload);
    const reached = roundCount(updatedReady, desired);
    const { phase = 0, step = 0, version = 0 } = workload.status?.rollout ?? {};
    const kind = [phase, step, version, reason.replaceAll(/\b[0-9a-f]{16}-\d+\b|\d+/g, '#')].join(
      '|',
    );
    const isNews = reached > this.best || !this.reported.has(kind);
    this.best = Math.max(this.best, reached);
    this.reported.add(kind);
    return isNews;
  }
}
