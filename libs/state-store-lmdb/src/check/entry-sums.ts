import type { HistorySegment, LeaseId, Revision } from '@cloudless/state-store';
import {
  addHashes,
  decodeLease,
  decodeSegmentHeads,
  decodeSegmentKey,
  EntryHeadReader,
  getSpace,
  hashRecord,
} from '../engine/records.js';
import type { Tables } from '../engine/tables.js';
import type { RecordVisitor } from './check-tree.js';

/** An entry on a lease. */
export interface LeasedEntry {
  readonly lease: LeaseId;
  readonly key: string;
}

/** Gets every entry of a store while the store is opened. Must not throw. */
export interface EntryConsumer {
  /**
   * Called with each entry, in the order of the keys.
   * @param value - Only valid during the call.
   */
  add(key: string, value: Uint8Array, modRevision: Revision): void;
  /**
   * Called once after all entries, when the data file was found to be intact.
   * @param revision - The newest revision of the store, whose entries these are.
   */
  end(revision: Revision): void;
}

/**
 * Sums over all entries, leases and history segments of a data file, taken while its pages are
 * checked: reading the records once more through LMDB would take most of the time of a check.
 */
export class EntrySums {
  /** For the tables of a data file. */
  readonly visitors: ReadonlyMap<string, RecordVisitor>;
  /** Entries on leases. */
  readonly leased: LeasedEntry[] = [];
  /** The segments of the history, oldest first, each of which matches its key. */
  readonly segments: HistorySegment[] = [];
  private readonly entry = new EntryHeadReader();
  private sum = 0;
  private newest: Revision = 0n;
  private fault: unknown;

  /** @param consumer - Gets the entries. Default: the entries are only summed up. */
  constructor(private readonly consumer?: Pick<EntryConsumer, 'add'>) {
    this.visitors = new Map([
      [
        'entries',
        this.visit((keys, keyStart, keyEnd, records, start, end) =>
          this.addEntry(keys, keyStart, keyEnd, records, start, end),
        ),
      ],
      ['leases', this.visitBuffers((key, record) => this.addLease(key, record))],
      ['history', this.visitBuffers((key, record) => this.addSegment(key, record))],
    ]);
  }

  /** Takes the sums of open tables. */
  static read({
    entries,
    leases,
    history,
  }: Pick<Tables, 'entries' | 'leases' | 'history'>): EntrySums {
    const sums = new EntrySums();
    for (const { key, value } of entries.getRange())
      sums.addEntry(key, 0, key.length, value, 0, value.length);
    for (const { key, value } of leases.getRange()) sums.addLease(key, value);
    for (const { key, value } of history.getRange()) sums.addSegment(key, value);
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
  private visit(add: RecordVisitor): RecordVisitor {
    return (keys, keyStart, keyEnd, records, start, end) => {
      if (this.fault !== undefined) return;
      try {
        add(keys, keyStart, keyEnd, records, start, end);
      } catch (reason) {
        this.fault = reason;
      }
    };
  }

  private visitBuffers(add: (key: Buffer, record: Buffer) => void): RecordVisitor {
    return this.visit((keys, keyStart, keyEnd, records, start, end) =>
      add(keys.subarray(keyStart, keyEnd), records.subarray(start, end)),
    );
  }

  private addEntry(
    keys: Buffer,
    keyStart: number,
    keyEnd: number,
    records: Buffer,
    start: number,
    end: number,
  ): void {
    const { entry, consumer } = this;
    entry.read(keys, keyStart, keyEnd, records, start, end);
    const { modRevision, lease, valueStart } = entry;
    this.sum = addHashes(this.sum, entry.hash);
    if (modRevision > this.newest) this.newest = modRevision;
    if (lease === undefined && consumer === undefined) return;
    const key = keys.toString('utf8', keyStart, keyEnd);
    if (lease !== undefined) this.leased.push({ lease, key });
    if (consumer === undefined) return;
    const value = new Uint8Array(records.buffer, records.byteOffset + valueStart, end - valueStart);
    consumer.add(key, value, modRevision);
  }

  private addLease(key: Buffer, record: Buffer): void {
    decodeLease(record);
    this.sum = addHashes(this.sum, hashRecord(key, record));
  }

  private addSegment(key: Buffer, record: Buffer): void {
    const { first, last, changes } = decodeSegmentKey(key);
    let expected = first;
    let found = 0;
    for (const transaction of decodeSegmentHeads(record)) {
      if (transaction.revision !== expected)
        throw new Error(`revision ${expected} is missing from the history`);
      found += transaction.changes;
      expected += 1n;
    }
    if (last !== expected - 1n || changes !== found)
      throw new Error('a segment of the history does not match its key');
    this.segments.push({ first, last, changes, bytes: getSpace(record.length) });
  }
}
