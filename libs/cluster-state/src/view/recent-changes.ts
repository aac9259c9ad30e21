import type { Revision } from '@cloudless/state-store';
import type { RecordChange } from './record-change.js';
import type { ViewBatch, ViewFollower } from './view-follower.js';

/** All records that one revision changed. */
export interface RecentRevision {
  readonly revision: Revision;
  readonly changes: readonly RecordChange[];
}

/** How much {@link RecentChanges} keeps at most, but the newest revision at any size. */
export interface RecentLimits {
  readonly revisions: number;
  /** Bytes of the changed records, before and after. */
  readonly bytes: number;
  /**
   * Replaces `bytes` before a reader first calls {@link RecentChanges.covers}, and when more than
   * `revisions` revisions have come since the last call.
   */
  readonly unreadBytes: number;
}

/**
 * Enough for clients that were away for seconds in a busy cluster, and for records such as configs,
 * which have up to 1 MiB. Without readers, the list has the changes of less than 0.2 s when 13,000
 * replicas are created per second: V8 moves objects that outlive two collections of the young
 * generation, which are 0.4 s apart at this rate, to the old generation.
 */
const LIMITS: RecentLimits = {
  revisions: 1_000,
  bytes: 32 * 1024 * 1024,
  unreadBytes: 1024 * 1024,
};

/**
 * The newest changes that a view has shown, for all readers of the history: each reader has only a
 * position, so neither their number nor their speed changes what is kept. A reader whose position
 * is older reads the history of the store.
 */
export class RecentChanges {
  /** Oldest first. */
  private readonly kept: (RecentRevision & { readonly bytes: number })[] = [];
  private bytes = 0;
  /** Revisions that were added since the last call of {@link covers}; Infinity before the first. */
  private unread = Infinity;
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

  /**
   * Returns true when every change that the view has shown after `position` is kept. Call this
   * method only for a reader, also for one that reads the store until its position is covered.
   */
  covers(position: Revision): boolean {
    this.unread = 0;
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
    this.unread += 1;
    while (this.isAboveLimits()) {
      const dropped = this.kept.shift();
      if (dropped === undefined) return;
      this.bytes -= dropped.bytes;
      this.start = dropped.revision;
    }
  }

  private isAboveLimits(): boolean {
    const { revisions, bytes, unreadBytes } = this.limits;
    const maxBytes = this.unread > revisions ? unreadBytes : bytes;
    return this.kept.length > revisions || (this.kept.length > 1 && this.bytes > maxBytes);
  }

  /** Begins again after a snapshot, which lacks what happened before. */
  private clear(revision: Revision): void {
    this.kept.length = 0;
    this.bytes = 0;
    this.start = revision;
  }
}
