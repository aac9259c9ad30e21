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
import { LmdbWriter } from './lmdb-writer.js';
import { isOutOfSpace, mayHaveRoom, noRoomFor } from './lmdb-errors.js';
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
export interface StorageLifetime {
  /** Checks whether the files still belong to this process. */
  readonly look?: () => StorageFault | undefined;
  /** Runs after LMDB is closed, to release the lock. */
  readonly onClose?: () => Promise<void>;
}

/** The storage of a store on LMDB. LMDB's readers see only durable commits. */
export class LmdbStorage implements Storage, StorageReader {
  /**
   * Error of the last write that found the disk full. Until there is space, every write is refused
   * without calling LMDB.
   */
  private fullBecause: unknown;
  /**
   * Counters of the last commit, and of a later attempt with unknown outcome: the file has one of
   * them.
   */
  private expected: readonly HeadRecord[];
  private isWriting = false;
  private overwritten: StorageFault | undefined;

  /**
   * @param file - The data file of `tables`.
   * @param window - Window over the history in `tables`.
   * @param lifetime - Default: no hooks.
   */
  constructor(
    private readonly file: string,
    private readonly tables: Tables,
    private readonly window: HistoryWindow,
    private readonly lifetime: StorageLifetime = {},
  ) {
    this.expected = [readHead(tables)];
  }

  read<T>(view: (reader: StorageReader) => T): T {
    return view(this); // LMDB keeps one snapshot during a synchronous call
  }

  async write<T>(action: (writer: StorageWriter) => T): Promise<T> {
    if (this.fullBecause !== undefined && !(await mayHaveRoom(this.file)))
      throw noRoomFor(this.file, this.fullBecause);
    const writer = new LmdbWriter(this.tables, this.window);
    this.isWriting = true;
    try {
      const result = await this.tables.root.childTransaction(() => {
        const before = this.checkedHead();
        const value = action(writer);
        this.expected = [before, readHead(this.tables)];
        return value;
      });
      this.expected = this.expected.slice(-1);
      this.tables.root.resetReadTxn(); // reads after the acknowledgement must see the commit
      writer.committed();
      this.fullBecause = undefined;
      return result;
    } catch (reason) {
      if (!(await isOutOfSpace(reason, this.file))) throw reason;
      this.fullBecause = reason;
      throw noRoomFor(this.file, reason);
    } finally {
      this.isWriting = false;
    }
  }

  *leases(): Iterable<readonly [LeaseId, number]> {
    for (const { key, value } of this.tables.leases.getRange())
      yield [key.toString('utf8'), decodeLease(value)];
  }

  fault(): StorageFault | undefined {
    const fault = this.lifetime.look?.();
    if (fault !== undefined || this.overwritten !== undefined || this.isWriting)
      return fault ?? this.overwritten;
    this.tables.root.resetReadTxn(); // an old snapshot would hide new commits
    return this.faultOf(readHead(this.tables));
  }

  async close(): Promise<void> {
    await this.tables.root.close();
    await this.lifetime.onClose?.();
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
      ...(end === undefined ? {} : { end }),
    };
    for (const { key, value } of this.tables.entries.getRange(options))
      yield decodeEntry(key.toString('utf8'), value);
  }

  *history(after: Revision): Iterable<LoggedTransaction> {
    for (const { key, value } of this.tables.history.getRange({
      start: this.segmentStart(after),
    })) {
      if (decodeSegmentKey(key).last > after) yield* decodeSegment(value, after);
    }
  }

  private checkedHead(): HeadRecord {
    const found = readHead(this.tables);
    const fault = this.faultOf(found);
    if (fault !== undefined) throw fault;
    return found;
  }

  /** An overwritten file keeps its inode, but has other counters. */
  private faultOf(found: HeadRecord): StorageFault | undefined {
    if (this.expected.some((head) => isSameHead(head, found))) return undefined;
    this.overwritten = new StorageFault(
      'content',
      `another program has written to ${this.file}: its content is not that of the last commit; writes are refused`,
    );
    return this.overwritten;
  }

  /** The segment that begins at or before `after` may end after it. */
  private segmentStart(after: Revision): Buffer {
    const next = Buffer.alloc(8);
    next.writeBigUInt64BE(after + 1n);
    const [holding] = this.tables.history.getKeys({
      start: Buffer.concat([next, Buffer.alloc(13, 0xff)]),
      reverse: true,
      limit: 1,
    });
    return holding ?? next;
  }
}

function isSameHead(one: HeadRecord, other: HeadRecord): boolean {
  return (
    one.revision === other.revision &&
    one.proof === other.proof &&
    one.leaseCount === other.leaseCount
  );
}
