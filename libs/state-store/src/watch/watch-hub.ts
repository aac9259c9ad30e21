import { CloudlessError } from '@cloudless/base';
import { checkRetained } from '../engine/read-range.js';
import type { ChangeBatch, Revision } from '../state-store.js';
import type { LoggedTransaction, Storage } from '../engine/storage.js';

/** Changes kept in memory, so that prompt readers do not read the stored history. */
const MAX_RECENT_CHANGES = 4_096;
/** Bytes of the changes kept in memory. Only the newest group of transactions may exceed them. */
const MAX_RECENT_BYTES = 8 * 1024 * 1024;
/** Transactions that one read of a watcher returns at most. Bounds the memory of a watch. */
const MAX_READ_TRANSACTIONS = 256;

interface RecentBatch {
  readonly batch: ChangeBatch;
  readonly bytes: number;
}

/**
 * Gives all watches the newest transactions from memory, and slower readers the stored history.
 * Holds nothing for a reader except a wake-up callback.
 */
export class WatchHub {
  private recent: RecentBatch[] = [];
  private recentChanges = 0;
  private recentBytes = 0;
  /** `recent` has all transactions after this revision. */
  private recentAfter: Revision;
  private readonly maxRecentChanges: number;
  private readonly waiters = new Set<() => void>();
  /** Undefined while watches run; `reason` is undefined when they ended without an error. */
  private ended: { readonly reason: CloudlessError | undefined } | undefined;

  /** @param historyLimit - Changes that the storage retains; memory never holds more. */
  constructor(
    private readonly storage: Storage,
    historyLimit: number,
  ) {
    this.recentAfter = storage.read((reader) => reader.head().revision);
    this.maxRecentChanges = Math.min(MAX_RECENT_CHANGES, historyLimit);
  }

  /** Makes transactions visible to watches. Call only with durable transactions. */
  publish(transactions: readonly LoggedTransaction[]): void {
    this.dropRecent();
    for (const transaction of transactions) {
      const recent = { batch: toBatch(transaction), bytes: countBytes(transaction) };
      this.recent.push(recent);
      this.recentChanges += recent.batch.changes.length;
      this.recentBytes += recent.bytes;
    }
    this.notifyWaiters();
  }

  /** Ends all watches: without an error, or with `reason`. */
  end(reason?: CloudlessError): void {
    this.ended ??= { reason };
    this.notifyWaiters();
  }

  /**
   * @returns True when watches have ended without an error.
   * @throws The reason when watches have ended with an error.
   */
  hasEnded(): boolean {
    if (this.ended?.reason !== undefined) throw this.ended.reason;
    return this.ended !== undefined;
  }

  /**
   * Checks that a watch can start after this revision.
   * @throws kind `compacted` when later changes are no longer retained; `invalid` when the revision
   *   does not exist.
   */
  checkStart(after: Revision): void {
    this.storage.read((reader) => checkRetained(reader.head(), after));
  }

  /**
   * Returns the next transactions after `position`, without gaps; empty when there are none yet.
   * @throws kind `compacted` when changes after `position` are no longer retained.
   */
  readAfter(position: Revision): readonly ChangeBatch[] {
    if (position >= this.recentAfter) return this.readRecent(position);
    return this.storage.read((reader) => {
      if (position < reader.head().compactedRevision) {
        throw new CloudlessError(
          'compacted',
          `the changes after revision ${position} are no longer retained; read a snapshot and watch from there`,
        );
      }
      const batches: ChangeBatch[] = [];
      for (const transaction of reader.history(position)) {
        batches.push(toBatch(transaction));
        if (batches.length === MAX_READ_TRANSACTIONS) break;
      }
      return batches;
    });
  }

  /** Calls `wake` once, at the next {@link WatchHub.publish} or {@link WatchHub.end}. */
  onNext(wake: () => void): void {
    this.waiters.add(wake);
  }

  /** Cancels a call of {@link WatchHub.onNext}. */
  cancelOnNext(wake: () => void): void {
    this.waiters.delete(wake);
  }

  /** Finds the first transaction after `position` by binary search. */
  private readRecent(position: Revision): readonly ChangeBatch[] {
    let low = 0;
    let high = this.recent.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.recent[middle]?.batch.revision ?? 0n) > position) high = middle;
      else low = middle + 1;
    }
    return this.recent.slice(low, low + MAX_READ_TRANSACTIONS).map(({ batch }) => batch);
  }

  /**
   * Drops the oldest transactions above the limits. Runs before the newest group is added, so that
   * a waiting reader finds all of that group in memory.
   */
  private dropRecent(): void {
    let count = 0;
    while (this.recentChanges > this.maxRecentChanges || this.recentBytes > MAX_RECENT_BYTES) {
      const oldest = this.recent[count];
      if (oldest === undefined) break;
      count += 1;
      this.recentChanges -= oldest.batch.changes.length;
      this.recentBytes -= oldest.bytes;
      this.recentAfter = oldest.batch.revision;
    }
    if (count > 0) this.recent = this.recent.slice(count);
  }

  private notifyWaiters(): void {
    const callbacks = [...this.waiters];
    this.waiters.clear();
    for (const wake of callbacks) wake();
  }
}

/** Leaves out the entries before the changes, so that nothing keeps them in memory. */
function toBatch({ revision, changes }: LoggedTransaction): ChangeBatch {
  return { revision, changes };
}

function countBytes({ changes }: LoggedTransaction): number {
  let bytes = 0;
  for (const change of changes)
    bytes +=
      change.kind === 'put'
        ? change.entry.key.length + change.entry.value.byteLength
        : change.key.length;
  return bytes;
}
