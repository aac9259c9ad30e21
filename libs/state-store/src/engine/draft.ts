import { CloudlessError } from '@cloudless/base';
import {
  RevisionConflictError,
  type Change,
  type Committed,
  type Compare,
  type LeaseId,
  type Operation,
  type Revision,
} from '../state-store.js';
import { getKey } from '../validate.js';
import { toStoreEntry } from './read-range.js';
import type { LoggedTransaction, StorageWriter, StoredEntry } from './storage.js';

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
    const compared: (StoredEntry | undefined)[] = [];
    for (const { key, is } of compares) {
      const entry = this.writer.get(key, is !== 'absent');
      const current = entry?.modRevision ?? 'absent';
      if (current !== is) throw new RevisionConflictError(key, is, current);
      compared.push(entry);
    }
    for (const operation of operations) {
      if ('put' in operation && operation.lease !== undefined) this.checkLease(operation.lease);
    }
    return this.apply(operations, compares, compared);
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
      [],
      [],
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

  /**
   * @param operations - At most one for each key.
   * @param compared - The entry of each of `compares`, in the same order; undefined: no entry.
   */
  private apply(
    operations: readonly Operation[],
    compares: readonly Compare[],
    compared: readonly (StoredEntry | undefined)[],
  ): Committed {
    const revision = this.revision + 1n;
    const changes: Change[] = [];
    const entriesBefore: (StoredEntry | undefined)[] = [];
    let next = 0;
    for (const operation of operations) {
      const key = getKey(operation);
      // Callers usually add the compare and the write of a key in the same order.
      const at = compares[next]?.key === key ? next : findCompare(compares, key);
      if (at >= 0) next = at + 1;
      const before = at < 0 ? this.writer.get(key) : compared[at];
      if ('put' in operation) {
        const { value, lease } = operation;
        const entry = toStoreEntry({ key, value, modRevision: revision, lease });
        this.writer.put(entry, before);
        changes.push({ kind: 'put', entry });
      } else {
        if (before === undefined) continue;
        this.writer.delete(before);
        changes.push({ kind: 'delete', key, modRevision: revision });
      }
      entriesBefore.push(before);
    }
    if (changes.length > 0) {
      this.revision = revision;
      this.hasChanged = true;
      this.transactions.push({ revision, changes, entriesBefore });
    }
    return { revision: this.revision };
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

/** Returns the index of a compare of a key; -1 when there is none. */
function findCompare(compares: readonly Compare[], key: string): number {
  for (let index = 0; index < compares.length; index += 1)
    if (compares[index]?.key === key) return index;
  return -1;
}

/** Form of the ids of {@link Draft.grantLease}. */
const LEASE_ID = /^lease-[1-9]\d{0,15}$/u;
