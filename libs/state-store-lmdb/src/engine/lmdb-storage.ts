import { definedFields } from '@cloudless/base';
import {
  StorageFault,
  type HistoryWindow,
  type LeaseId,
  type LoggedTransaction,
  type Revision,
  type Storage,
  type StorageReader,
  type StorageWriter,
  type StoredEntry,
  type StoreHead,
} from '@cloudless/state-store';
import { AbsentKeys } from './absent-keys.js';
import { LmdbWriter } from './lmdb-writer.js';
import { EntryCache } from './entry-cache.js';
import { isOutOfSpace, mayHaveSpace, diskFullError } from './lmdb-errors.js';
import {
  decodeEntry,
  decodeLease,
  decodeSegment,
  decodeSegmentKey,
  type HeadRecord,
} from './records.js';
import { readEntry, readHead } from './table-reads.js';
import { endOfPrefix, type Tables } from './tables.js';

/** Hooks of an open data file. */
export interface StorageHooks {
  /** Returns a fault when data file or lock no longer belong to this process. Default: no check. */
  readonly checkFiles?: () => StorageFault | undefined;
  /** Runs after LMDB is closed, to release the lock. */
  readonly onClose?: () => Promise<void>;
}

/** Storage of a store on LMDB. Reads return only durable commits. */
export class LmdbStorage implements Storage, StorageReader {
  /**
   * Error of the last write that found the disk full. Until there is space, every write is refused
   * without calling LMDB.
   */
  private diskFullCause: unknown;
  /**
   * Counters of the last commit, and of a later commit whose outcome is unknown. The file must have
   * one of these.
   */
  private expectedHeads: readonly HeadRecord[];
  private readonly cache = new EntryCache();
  private readonly absentKeys = new AbsentKeys();
  private isWriting = false;
  private overwriteFault: StorageFault | undefined;

  /**
   * @param file - Path of the data file of `tables`.
   * @param tables - Open tables, which the storage closes.
   * @param historyWindow - Window over the history in `tables`.
   * @param hooks - Default: no hooks.
   */
  constructor(
    private readonly file: string,
    private readonly tables: Tables,
    private readonly historyWindow: HistoryWindow,
    private readonly hooks: StorageHooks = {},
  ) {
    this.expectedHeads = [readHead(tables)];
  }

  read<T>(view: (reader: StorageReader) => T): T {
    return view(this); // LMDB keeps one snapshot during a synchronous call
  }

  async write<T>(action: (writer: StorageWriter) => T): Promise<T> {
    if (this.diskFullCause !== undefined && !(await mayHaveSpace(this.file)))
      throw diskFullError(this.file, this.diskFullCause);
    const writer = new LmdbWriter(this.tables, this.historyWindow, this.cache, this.absentKeys);
    this.isWriting = true;
    try {
      const result = await this.tables.root.childTransaction(() => {
        const before = this.readCheckedHead();
        const value = action(writer);
        this.expectedHeads = [before, readHead(this.tables)];
        return value;
      });
      this.expectedHeads = this.expectedHeads.slice(-1);
      this.tables.root.resetReadTxn(); // reads after the acknowledgement must see the commit
      writer.onCommitted();
      this.diskFullCause = undefined;
      return result;
    } catch (reason) {
      this.cache.clear(); // it has entries of the transaction that was aborted
      this.absentKeys.clear(); // it may have keys that the aborted transaction had deleted
      if (!(await isOutOfSpace(reason, this.file))) throw reason;
      this.diskFullCause = reason;
      throw diskFullError(this.file, reason);
    } finally {
      this.isWriting = false;
    }
  }

  *leases(): Iterable<readonly [LeaseId, number]> {
    for (const { key, value } of this.tables.leases.getRange())
      yield [key.toString('utf8'), decodeLease(value)];
  }

  fault(): StorageFault | undefined {
    const fault = this.hooks.checkFiles?.();
    if (fault !== undefined || this.overwriteFault !== undefined || this.isWriting)
      return fault ?? this.overwriteFault;
    this.tables.root.resetReadTxn(); // an old LMDB snapshot would hide writes of other programs
    return this.checkHead(readHead(this.tables));
  }

  async close(): Promise<void> {
    await this.tables.root.close();
    await this.hooks.onClose?.();
  }

  head(): StoreHead {
    return readHead(this.tables);
  }

  get(key: string): StoredEntry | undefined {
    return readEntry(this.tables, key);
  }

  *scan(prefix: string, after: string | undefined): Iterable<StoredEntry> {
    const first = Buffer.from(prefix);
    const next = after === undefined ? first : Buffer.from(`${after}\0`);
    const start = Buffer.compare(next, first) > 0 ? next : first;
    const end = endOfPrefix(first);
    if (end !== undefined && Buffer.compare(start, end) >= 0) return;
    const options = {
      ...(start.length > 0 ? { start } : {}),
      ...definedFields({ end }),
    };
    for (const { key, value } of this.tables.entries.getRange(options))
      yield decodeEntry(key.toString('utf8'), value);
  }

  *history(after: Revision): Iterable<LoggedTransaction> {
    for (const { key, value } of this.tables.history.getRange({
      start: this.findSegmentStart(after),
    })) {
      if (decodeSegmentKey(key).last > after) yield* decodeSegment(value, after);
    }
  }

  /** @throws {@link StorageFault} when another program has written to the file. */
  private readCheckedHead(): HeadRecord {
    const head = readHead(this.tables);
    const fault = this.checkHead(head);
    if (fault !== undefined) throw fault;
    return head;
  }

  /**
   * Returns a fault when the counters are not the expected ones: a file that is overwritten in
   * place keeps its inode, but has other counters.
   */
  private checkHead(head: HeadRecord): StorageFault | undefined {
    if (this.expectedHeads.some((expected) => isSameHead(expected, head))) return undefined;
    this.overwriteFault = new StorageFault(
      'content',
      `another program has written to ${this.file}: its content is not that of the last commit; writes are refused`,
    );
    return this.overwriteFault;
  }

  /** Returns the key of the last segment that begins at or before revision `after + 1`. */
  private findSegmentStart(after: Revision): Buffer {
    const nextRevision = Buffer.alloc(8);
    nextRevision.writeBigUInt64BE(after + 1n);
    const [segmentKey] = this.tables.history.getKeys({
      // sorts after every segment that begins at this revision, and before the next revision
      start: Buffer.concat([nextRevision, Buffer.alloc(13, 0xff)]),
      reverse: true,
      limit: 1,
    });
    return segmentKey ?? nextRevision;
  }
}

function isSameHead(one: HeadRecord, other: HeadRecord): boolean {
  return (
    one.revision === other.revision &&
    one.hashSum === other.hashSum &&
    one.leaseCount === other.leaseCount
  );
}
