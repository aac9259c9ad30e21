import type { Revision } from '@cloudless/state-store';
import type { RecordChange } from './record-change.js';
import type { ViewBatch, ViewFollower } from './view-follower.js';

/** All records that one revision changed. */
export interface RecentRevision {
  readonly revision: Revision;
  readonly changes: readonly RecordChange[];
}

/** How much {@link RecentChanges} keeps at most. */
export interface RecentLimits {
  readonly revisions: number;
  /** Bytes of the changed records, before and after. */
  readonly bytes: number;
}

/**
 * Enough for clients that were away for seconds in a busy cluster, where a replica has about 1 KiB.
 * Some records, such as configs, have up to 1 MiB.
 */
const LIMITS: RecentLimits = { revisions: 1_000, bytes: 32 * 1024 * 1024 };

/**
 * The newest changes that a view has shown, for all readers of the history: each reader has only a
 * position, so neither their number nor their speed changes what is kept. A reader whose position is
 * older reads the history of the store.
 */
export class RecentChanges {
  /** Oldest first. */
  private readonly kept: (RecentRevision & { readonly bytes: number })[] = [];
  private bytes = 0;
  /** The revision before the oldest kept one. */
  private start: Revision;

  constructor(
    follower: Pick<ViewFollower, 'onBatch' | 'view'>,
    private readonly limits: RecentLimits = LIMITS,
  ) {
    this.start = follower.view.revision;
    follower.onBatch((batch) => {
      if (batch.isSnapshot) this.clear(batch.revision);
      else this.add(batch);
    });
  }

  /** True when every change that the view has shown after `position` is kept. */
  covers(position: Revision): boolean {
    return position >= this.start;
  }

  /**
   * Returns the revisions after `position`, oldest first.
   * @param position - A revision that {@link covers} accepts.
   * @param max - Revisions to return at most.
   */
  listAfter(position: Revision, max: number): readonly RecentRevision[] {
    let [low, high] = [0, this.kept.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.kept[middle]?.revision ?? 0n) <= position) low = middle + 1;
      else high = middle;
    }
    return this.kept.slice(low, low + max);
  }

  private add({ revision, changes, bytes }: ViewBatch): void {
    this.kept.push({ revision, changes, bytes });
    this.bytes += bytes;
    const { limits } = this;
    while (this.kept.length > limits.revisions || this.bytes > limits.bytes) {
      const dropped = this.kept.shift();
      if (dropped === undefined) return;
      this.bytes -= dropped.bytes;
      this.start = dropped.revision;
    }
  }

  /** Begins again after a snapshot, which lacks what happened before. */
  private clear(revision: Revision): void {
    this.kept.length = 0;
    this.bytes = 0;
    this.start = revision;
  }
}
