import { errorFields, type Clock, type Log, type Timer } from '@cloudless/base';
import type { Revision } from '@cloudless/state-store';

/** A watch of all keys of the store. */
export interface FullWatch {
  /** Revision up to which everything was delivered. */
  readonly position: Revision;
  /** True while the reader waits for etcd. */
  readonly isWaiting: boolean;
}

export interface ProgressMarkerOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** Makes a change that watches of all keys show. */
  readonly mark: () => Promise<void>;
}

/**
 * Time for which a watch may lag behind a revision that a reader knows before a mark is written,
 * milliseconds. Far above the delay of a watch, far below the patience of those who wait.
 */
export const MARK_AFTER_MS = 250;

/**
 * Lets watches of all keys reach each revision that readers know. A change outside of the store also
 * gives etcd a new revision, which no watch of the store shows: readers would wait for this revision
 * until the next change of the store. A watch that lags for {@link MARK_AFTER_MS} without such a
 * change gets one: a mark. (etcd 3.4 also reports the progress of a watch on request, but before
 * 3.4.25 it does so ahead of changes that it has not delivered.)
 */
export class ProgressMarker {
  private readonly watches = new Set<FullWatch>();
  /** The newest revision that a reader knows. */
  private known: Revision = 0n;
  /** The newest revision up to which a later change of the store is known. */
  private covered: Revision = 0n;
  private timer: Timer | undefined;
  private isMarking = false;
  private isStopped = false;

  constructor(private readonly options: ProgressMarkerOptions) {}

  /** Adds a watch, until the returned function is called. */
  add(watch: FullWatch): () => void {
    this.watches.add(watch);
    this.schedule();
    return () => this.watches.delete(watch);
  }

  /** Records a revision that a reader may wait for. */
  recordKnown(revision: Revision): void {
    if (revision <= this.known) return;
    this.known = revision;
    this.schedule();
  }

  /** Records a revision with a change that watches of all keys show. */
  recordChange(revision: Revision): void {
    if (revision > this.covered) this.covered = revision;
  }

  /** Writes no further marks. */
  stop(): void {
    this.isStopped = true;
    this.timer?.cancel();
  }

  private get lagging(): readonly FullWatch[] {
    if (this.covered >= this.known) return [];
    return [...this.watches].filter(({ position }) => position < this.known);
  }

  private schedule(): void {
    if (this.isStopped || this.isMarking || this.timer !== undefined) return;
    if (this.lagging.length === 0) return;
    const { known } = this;
    this.timer = this.options.clock.setTimer(MARK_AFTER_MS, () => {
      this.timer = undefined;
      void this.markUpTo(known);
    });
  }

  /** Marks if a watch still waits for this revision. */
  private async markUpTo(revision: Revision): Promise<void> {
    const isNeeded =
      this.covered < revision &&
      this.lagging.some(({ isWaiting, position }) => isWaiting && position < revision);
    if (isNeeded) {
      this.isMarking = true;
      try {
        await this.options.mark();
        this.recordChange(revision);
      } catch (reason) {
        if (!this.isStopped)
          this.options.log.warn('progress of watches not marked in etcd', {
            revision,
            ...errorFields(reason),
          });
      }
      this.isMarking = false;
    }
    this.schedule();
  }
}
