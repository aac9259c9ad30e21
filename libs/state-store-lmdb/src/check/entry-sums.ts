import type { LeaseId, Revision } from '@cloudless/state-store';
import { addHashes, decodeEntryHead, decodeLease, hashRecord } from '../engine/records.js';
import type { Tables } from '../engine/tables.js';
import type { RecordVisitor } from './check-tree.js';

/** An entry on a lease. */
export interface LeasedEntry {
  readonly lease: LeaseId;
  readonly key: string;
}

/**
 * Sums over all entries and leases of a data file, taken while its pages are checked: reading the
 * records once more through LMDB would take most of the time of a check.
 */
export class EntrySums {
  /** For the tables of a data file. */
  readonly visitors: ReadonlyMap<string, RecordVisitor>;
  /** Entries on leases. */
  readonly leased: LeasedEntry[] = [];
  private sum = 0;
  private newest: Revision = 0n;
  private fault: unknown;

  constructor() {
    this.visitors = new Map([
      ['entries', (key, record) => this.visit(() => this.addEntry(key, record))],
      ['leases', (key, record) => this.visit(() => this.addLease(key, record))],
    ]);
  }

  /** Takes the sums of open tables. */
  static read({ entries, leases }: Pick<Tables, 'entries' | 'leases'>): EntrySums {
    const sums = new EntrySums();
    for (const { key, value } of entries.getRange()) sums.addEntry(key, value);
    for (const { key, value } of leases.getRange()) sums.addLease(key, value);
    return sums;
  }

  /** Sum of the hashes of all entries and leases, modulo 2^32. */
  get hashSum(): number {
    return this.sum;
  }

  /** Newest revision of an entry. */
  get newestRevision(): Revision {
    return this.newest;
  }

  /** @throws the error of the first record that cannot be read. */
  throwFault(): void {
    if (this.fault !== undefined) throw this.fault;
  }

  /** Pages are checked to their end, whose errors come first. */
  private visit(add: () => void): void {
    if (this.fault !== undefined) return;
    try {
      add();
    } catch (reason) {
      this.fault = reason;
    }
  }

  private addEntry(key: Buffer, record: Buffer): void {
    const { modRevision, lease } = decodeEntryHead(record);
    this.sum = addHashes(this.sum, hashRecord(key, record));
    if (modRevision > this.newest) this.newest = modRevision;
    if (lease !== undefined) this.leased.push({ lease, key: key.toString('utf8') });
  }

  private addLease(key: Buffer, record: Buffer): void {
    decodeLease(record);
    this.sum = addHashes(this.sum, hashRecord(key, record));
  }
}
