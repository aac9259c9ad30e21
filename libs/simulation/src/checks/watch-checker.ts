import { WatchWorkloadsResponse_Kind as WatchKind, readLeaderHint } from '@cloudless/api';
import { errorKindOf, type Clock } from '@cloudless/base';
import type { StateStore } from '@cloudless/state-store';
import type { ServingCoordinator } from '../parts/serving-coordinator.js';
import type { SimProcess } from '../parts/sim-process.js';
import type { SimDisk } from '../parts/sim-disk.js';
import type { SimRandom } from '../parts/sim-random.js';

export interface WatcherDeps {
  readonly time: Clock;
  readonly random: SimRandom;
  readonly disk: SimDisk;
  readonly reportViolation: (text: string) => void;
  readonly trace: (text: string) => void;
}

/** A store, and the process that opened it. */
export interface FollowedStore {
  readonly engine: StateStore;
  readonly process: Pick<SimProcess, 'isDead'>;
}

/**
 * Invariant 4: reads every change of the store, sometimes slowly, and across coordinator restarts.
 */
export class StoreWatcher {
  private position = 0n;
  private isClosed = false;

  constructor(private readonly deps: WatcherDeps) {}

  /** Ends all reading. */
  close(): void {
    this.isClosed = true;
  }

  /** Reads from the last position on until this coordinator ends. */
  async follow(coordinator: FollowedStore): Promise<void> {
    const { disk, reportViolation, trace } = this.deps;
    const hasEnded = (): boolean => coordinator.process.isDead || this.isClosed;
    while (!hasEnded()) {
      try {
        for await (const { revision } of coordinator.engine.watch({
          prefix: '/',
          after: this.position,
        })) {
          if (hasEnded()) return;
          if (revision !== this.position + 1n)
            reportViolation(`4: a watch went from revision ${this.position} to ${revision}`);
          this.position = revision;
          await this.pause();
        }
        return;
      } catch (reason) {
        if (hasEnded()) return;
        if (errorKindOf(reason) !== 'compacted')
          return reportViolation(`4: a watch failed: ${String(reason)}`);
        if (this.position >= disk.compactedRevision)
          reportViolation(
            `4: revision ${this.position} was reported as compacted, but the newest compacted revision is ${disk.compactedRevision}`,
          );
        trace(`fell behind at revision ${this.position}, starts again at ${disk.revision}`);
        this.position = disk.revision;
      }
    }
  }

  /** Sometimes waits, so that the watcher falls behind. */
  private async pause(): Promise<void> {
    const { random, time } = this.deps;
    if (!random.chance(0.02)) return;
    await new Promise<void>((resolve) => time.setTimer(random.between(50, 3_000), resolve));
  }
}

/** Invariant 4: a user who watches all workloads sees a consistent state. */
export class WorkloadWatcher {
  /** Last shown generation by uid; undefined before the initial state is complete. */
  private shown: Map<string, bigint> | undefined;

  constructor(private readonly deps: Pick<WatcherDeps, 'reportViolation'>) {}

  /** Generation of each workload by uid; undefined before the initial state is complete. */
  get view(): ReadonlyMap<string, bigint> | undefined {
    return this.shown;
  }

  /** Watches until this coordinator ends. */
  async follow(coordinator: ServingCoordinator): Promise<void> {
    const { reportViolation } = this.deps;
    const seen = new Map<string, bigint>();
    let revision = 0n;
    this.shown = undefined;
    try {
      for await (const item of coordinator.client.watchWorkloads({})) {
        if (coordinator.process.isDead) return;
        if (item.revision < revision)
          reportViolation(
            `4: a watch of workloads went back from revision ${revision} to ${item.revision}`,
          );
        revision = item.revision;
        const { workload } = item;
        if (item.kind === WatchKind.SYNCED) this.shown = seen;
        if (workload === undefined) continue;
        if (item.kind === WatchKind.DELETED) {
          seen.delete(workload.uid);
          continue;
        }
        if (workload.generation < (seen.get(workload.uid) ?? 0n))
          reportViolation(
            `4: a watch showed generation ${workload.generation} of ${workload.name} after a newer one`,
          );
        seen.set(workload.uid, workload.generation);
      }
    } catch (reason) {
      // The watch of a coordinator that no longer leads ends; the next leader is watched then.
      const isExpected = readLeaderHint(reason) !== undefined || endsWithStaleView(reason);
      if (!coordinator.process.isDead && !isExpected)
        reportViolation(`4: a watch of workloads failed: ${String(reason)}`);
    }
  }
}

/** Returns true when a coordinator that follows has not reached the store for too long. */
function endsWithStaleView(reason: unknown): boolean {
  return String(reason).includes('has not reached the state store');
}
