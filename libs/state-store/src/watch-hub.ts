import { CloudlessError } from '@cloudless/base';
import { checkRetained, toStoreEntry } from './read-range.js';
import type { Change, ChangeBatch, Revision } from './state-store.js';
import type { LoggedTransaction, Storage } from './storage.js';

/** Changes kept in memory so that readers who keep up do not read the stored history. */
const MAX_RECENT_CHANGES = 4_096;
/** Bytes of keys and values kept in memory for the same reason, beside the newest group. */
const MAX_RECENT_BYTES = 8 * 1024 * 1024;
/** Transactions one reader takes at once. Bounds what it holds. */
const MAX_READ_TRANSACTIONS = 256;

interface Recent {
  readonly batch: ChangeBatch;
  readonly bytes: number;
}

/**
 * Where watches read from: the newest transactions in memory, and the stored history for those who
 * are behind. Holds nothing per reader but its wish to be woken.
 */
export class WatchHub {
  private recent: Recent[] = [];
  private recentChanges = 0;
  private recentBytes = 0;
  /** All transactions after this revision are in `recent`. */
  private recentAfter: Revision;
  private readonly maxRecentChanges: number;
  private readonly sleepers = new Set<() => void>();
  private ended: { readonly reason: CloudlessError | undefined } | undefined;

  constructor(
    private readonly storage: Storage,
    historyLimit: number,
  ) {
    this.recentAfter = storage.read((reader) => reader.head().revision);
    this.maxRecentChanges = Math.min(MAX_RECENT_CHANGES, historyLimit);
  }

  /** Makes durable transactions visible to watches. */
  publish(transactions: readonly LoggedTransaction[]): void {
    this.dropRecent();
    for (const transaction of transactions) {
      const recent = { batch: toBatch(transaction), bytes: countBytes(transaction) };
      this.recent.push(recent);
      this.recentChanges += recent.batch.changes.length;
      this.recentBytes += recent.bytes;
    }
    this.wakeAll();
  }

  /** Ends all watches: without error, or with `reason`. */
  end(reason?: CloudlessError): void {
    this.ended ??= { reason };
    this.wakeAll();
  }

  /** Whether watches have ended. @throws The reason they ended with. */
  hasEnded(): boolean {
    if (this.ended?.reason !== undefined) throw this.ended.reason;
    return this.ended !== undefined;
  }

  /** @throws kind `compacted` or `invalid` when a watch cannot begin after this revision. */
  checkStart(after: Revision): void {
    this.storage.read((reader) => checkRetained(reader.head(), after));
  }

  /**
   * The next transactions after `position`, without gap; empty when there are none yet. @throws
   * kind `compacted`.
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

  /** Calls `wake` once, at the next publication or the end. */
  onNext(wake: () => void): void {
    this.sleepers.add(wake);
  }

  /** Takes back a wish that was not granted yet. */
  offNext(wake: () => void): void {
    this.sleepers.delete(wake);
  }

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
   * Only what is older than the newest group goes, so that a reader who was waiting always finds
   * all of it.
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

  private wakeAll(): void {
    const sleepers = [...this.sleepers];
    this.sleepers.clear();
    for (const wake of sleepers) wake();
  }
}

function toBatch({ revision, changes }: LoggedTransaction): ChangeBatch {
  return {
    revision,
    changes: changes.map(({ key, after }): Change =>
      after === undefined
        ? { kind: 'delete', key, modRevision: revision }
        : { kind: 'put', entry: toStoreEntry(after) },
    ),
  };
}

function countBytes({ changes }: LoggedTransaction): number {
  return changes.reduce(
    (sum, { key, after }) => sum + key.length + (after?.value.byteLength ?? 0),
    0,
  );
}
