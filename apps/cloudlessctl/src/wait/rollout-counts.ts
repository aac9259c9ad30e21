import type { VersionInfo, Workload } from '@cloudless/api';

/** What lives of a workload, by whether it belongs to the version that is wanted. */
export interface RolloutCounts {
  readonly desired: number;
  /** Of the wanted version, and to stay. */
  readonly updated: number;
  readonly updatedReady: number;
  /** Of other versions, or leaving. */
  readonly old: number;
  readonly ready: number;
  /** The floor that voluntary actions keep. */
  readonly minimum: number;
}

/** Counts what the status of a workload tells of. */
export function rolloutCounts({ status }: Workload): RolloutCounts {
  const wanted = canonicalVersion(status?.versions ?? [], status?.version ?? 0);
  const updatedReady = (status?.replicas ?? []).filter(
    ({ version, ready, leaving }) =>
      ready && !leaving && canonicalVersion(status?.versions ?? [], version) === wanted,
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

/**
 * The oldest version with the same template: replicas of the one are as good as those of the other.
 */
function canonicalVersion(versions: readonly VersionInfo[], version: number): number {
  return versions.find((info) => info.version === version)?.sameAs || version;
}

/** With many replicas not each of them is news: so many tenths, or, of up to ten, so many. */
export function tenths(count: number, of: number): number {
  return of <= 10 ? count : Math.floor((count * 10) / of);
}

/**
 * Tells what is new to somebody who reads line by line: more replicas ready at the wanted version
 * than ever before, another phase or step, and a reason that was not given yet. Counts that go up
 * and down are not.
 */
export class Milestones {
  private best = -1;
  private readonly told = new Set<string>();

  /**
   * @param reason - Why it is not there yet; numbers and names of replicas in it make no
   * difference.
   */
  isNews(workload: Workload, reason: string): boolean {
    const { updatedReady, desired } = rolloutCounts(workload);
    const reached = tenths(updatedReady, desired);
    const { phase = 0, step = 0, version = 0 } = workload.status?.rollout ?? {};
    const kind = [phase, step, version, reason.replaceAll(/\b[0-9a-f]{16}-\d+\b|\d+/g, '#')].join(
      '|',
    );
    const isNews = reached > this.best || !this.told.has(kind);
    this.best = Math.max(this.best, reached);
    this.told.add(kind);
    return isNews;
  }
}
