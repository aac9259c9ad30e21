import { CloudlessError } from '@cloudless/base';
import {
  RevisionConflictError,
  type Committed,
  type Compare,
  type LeaseId,
  type Operation,
  type Revision,
} from '../state-store.js';
import { getKey } from '../validate.js';
import type { LoggedChange, LoggedTransaction, StorageWriter, StoredEntry } from './storage.js';

/**
 * The store during one group commit. The commands of the group read and change the draft one after
 * the other. Each command checks all conditions before it writes, so that a refused command leaves
 * no trace.
 */
export class Draft {
  /** Transactions so far, oldest first. */
  readonly transactions: LoggedTransaction[] = [];
  private revision: Revision;
  private leaseCount: number;
  private hasChanged = false;

  constructor(private readonly writer: StorageWriter) {
    const head = writer.head();
    this.revision = head.revision;
    this.leaseCount = head.leaseCount;
  }

  /**
   * Checks compares and leases, then applies the operations.
   * @throws {@link RevisionConflictError} when a compare fails; kind `notFound` for an unknown
   *   lease.
   */
  transact(compares: readonly Compare[], operations: readonly Operation[]): Committed {
    const entriesRead: EntriesRead = new Map();
    for (const { key, is } of compares) {
      const entry = this.readEntry(key, entriesRead);
      const current = entry?.modRevision ?? 'absent';
      if (current !== is) throw new RevisionConflictError(key, is, current);
    }
    for (const operation of operations) {
      if ('put' in operation && operation.lease !== undefined) this.checkLease(operation.lease);
    }
    return this.apply(operations, entriesRead);
  }

  /** Creates a lease with an id that was never used before. */
  grantLease(ttlMs: number): LeaseId {
    this.leaseCount += 1;
    this.hasChanged = true;
    const lease = `lease-${this.leaseCount}`;
    this.writer.putLease(lease, ttlMs);
    return lease;
  }

  /** Deletes the lease and all its keys in one transaction. Has no effect on an unknown lease. */
  endLease(lease: LeaseId): void {
    if (!this.isLease(lease)) return;
    this.apply(
      this.writer.leasedKeys(lease).map((key) => ({ delete: key })),
      new Map(),
    );
    this.writer.deleteLease(lease);
    this.hasChanged = true;
  }

  /** Makes {@link Draft.finish} rewrite the counters, so that the storage has to write. */
  probe(): void {
    this.hasChanged = true;
  }

  /** Writes history and counters if anything changed. Call once, after the last command. */
  finish(): void {
    if (this.hasChanged)
      this.writer.finish(this.transactions, {
        revision: this.revision,
        leaseCount: this.leaseCount,
      });
  }

  private apply(operations: readonly Operation[], entriesRead: EntriesRead): Committed {
    const revision = this.revision + 1n;
    const changes: LoggedChange[] = [];
    for (const operation of operations) {
      const key = getKey(operation);
      const before = this.readEntry(key, entriesRead);
      if ('put' in operation) {
        const after = {
          key,
          value: operation.value,
          modRevision: revision,
          lease: operation.lease,
        };
        this.writer.put(after, before);
        changes.push({ key, before, after });
      } else if (before !== undefined) {
        this.writer.delete(before);
        changes.push({ key, before, after: undefined });
      }
    }
    if (changes.length > 0) {
      this.revision = revision;
      this.hasChanged = true;
      this.transactions.push({ revision, changes });
    }
    return { revision: this.revision };
  }

  private readEntry(key: string, entriesRead: EntriesRead): StoredEntry | undefined {
    const known = entriesRead.get(key);
    if (known !== undefined) return known === ABSENT ? undefined : known;
    const entry = this.writer.get(key);
    entriesRead.set(key, entry ?? ABSENT);
    return entry;
  }

  private checkLease(lease: LeaseId): void {
    if (!this.isLease(lease))
      throw new CloudlessError('notFound', `lease ${lease} does not exist or has ended`);
  }

  /**
   * Returns true when the lease exists. Text that cannot be a lease id never reaches the engine,
   * because the text may be longer than the keys of the engine.
   */
  private isLease(lease: LeaseId): boolean {
    return LEASE_ID.test(lease) && this.writer.hasLease(lease);
  }
}

/** The entries that a transaction has read, by key. */
type EntriesRead = Map<string, StoredEntry | typeof ABSENT>;
const ABSENT = 'absent';

/** Form of the ids of {@link Draft.grantLease}. */
const LEASE_ID = /^lease-[1-9]\d{0,15}$/u;
