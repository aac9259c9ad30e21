import type { ReplicaRecord } from '@cloudless/api/store';
import type { Clock } from '@cloudless/base';
import { isLive, waitsForNode } from '@cloudless/cluster-state';
import type { RolloutDecision, RolloutObserved } from '@cloudless/rollout';

/** Passes over smaller workloads cost less than what this file saves. */
const MIN_REPLICAS = 64;
/** Time after which progress is recorded although replicas are still missing, milliseconds. */
const REFRESH_MS = 1_000;

/** A workload whose replicas only have to become ready. */
interface Start {
  /** Replicas that are not ready. */
  missing: number;
  /** True when a replica has become ready since the last pass. */
  hasProgressed: boolean;
  /** Time of the last pass, on the monotonic clock. */
  readonly passedAtMs: number;
  /** Time of the next pass that time alone requires, on the monotonic clock. */
  readonly dueAtMs: number;
}

/**
 * Large workloads that only wait until their replicas are ready: all wanted replicas exist, with the
 * wanted template, and none has to leave. No decision can come before the last of them is ready, so
 * passes are put off until then, or until anything else changes. Without this, a pass over all
 * replicas would follow whenever a few of them become ready.
 */
export class StartingWorkloads {
  private readonly starts = new Map<string, Start>();

  constructor(private readonly clock: Pick<Clock, 'now'>) {}

  /**
   * Records what a pass has found, before its commit.
   * @param delayMs - Time until the next pass that time alone requires; infinite without one.
   */
  recordPass(
    uid: string,
    { observed, decision }: { observed: RolloutObserved; decision: RolloutDecision },
    replicas: Iterable<ReplicaRecord>,
    delayMs: number,
  ): void {
    this.starts.delete(uid);
    if (decision.kind !== 'waiting' || !hasOnlyToStart(observed)) return;
    let missing = observed.waiting ?? 0;
    for (const replica of replicas) if (isLive(replica) && !replica.ready) missing += 1;
    if (missing === 0) return;
    const now = this.clock.now();
    const dueAtMs = now + delayMs;
    this.starts.set(uid, { missing, hasProgressed: false, passedAtMs: now, dueAtMs });
  }

  /** Ends the wait of a workload: its next pass is not put off. */
  delete(uid: string): void {
    this.starts.delete(uid);
  }

  /**
   * Takes a change of a replica into account.
   * @returns True when a pass has to follow now.
   */
  applyChange(
    uid: string,
    before: ReplicaRecord | undefined,
    after: ReplicaRecord | undefined,
  ): boolean {
    const start = this.starts.get(uid);
    if (start === undefined) return true;
    const isOnlyProgress = before !== undefined && after !== undefined && isProgress(before, after);
    if (isOnlyProgress && after.ready) {
      start.missing -= 1;
      start.hasProgressed = true;
    }
    if (isOnlyProgress && start.missing > 0) return false;
    this.starts.delete(uid);
    return true;
  }

  /** Returns the milliseconds until the next pass over a workload; 0 when it is not put off. */
  getWaitMs(uid: string): number {
    const start = this.starts.get(uid);
    if (start === undefined) return 0;
    const { hasProgressed, passedAtMs, dueAtMs } = start;
    const now = this.clock.now();
    const refreshAtMs = passedAtMs + REFRESH_MS;
    // Without progress there is nothing to record.
    const nextAtMs = hasProgressed ? refreshAtMs : Math.max(refreshAtMs, now + REFRESH_MS);
    return Math.max(0, Math.min(dueAtMs, nextAtMs) - now);
  }
}

/** Returns true when no step is possible, whichever replicas become ready, until all are. */
function hasOnlyToStart(observed: RolloutObserved): boolean {
  const { want, version, replicas, waiting = 0, paused, strategy, globalTargets } = observed;
  return (
    want >= MIN_REPLICAS &&
    replicas.length + waiting === want &&
    paused !== true &&
    globalTargets === undefined &&
    (strategy === undefined ||
      (strategy.kind === 'rollingUpdate' && strategy.updated === undefined)) &&
    replicas.every(
      (replica) =>
        replica.version === version &&
        replica.desired === 'running' &&
        !replica.lost &&
        !replica.draining &&
        replica.forced !== true,
    )
  );
}

/**
 * Returns true for a change of a replica after which the creations of a decision, which was made
 * before, are still right: the replica waits for a node as before, or is on its way to readiness.
 */
export function keepsCreations(before: ReplicaRecord, after: ReplicaRecord | undefined): boolean {
  if (after === undefined) return false;
  return (waitsForNode(before) && waitsForNode(after)) || isProgress(before, after);
}

/**
 * Returns true for a change of a replica on its way to readiness that no decision depends on: the
 * replica was placed, starts, runs or is ready.
 */
function isProgress(before: ReplicaRecord, after: ReplicaRecord): boolean {
  return (
    !before.ready &&
    isLive(after) &&
    !after.lost &&
    after.desiredRunning &&
    before.desiredRunning &&
    after.nodeId !== '' &&
    (before.nodeId === after.nodeId || before.nodeId === '') &&
    before.restarts === after.restarts &&
    before.stopAfterUnconfirmed === after.stopAfterUnconfirmed &&
    before.stopAfter === after.stopAfter &&
    before.lostAfter === after.lostAfter
  );
}
