import type { Database, RootDatabase } from 'lmdb';

/** A table with binary keys and values, ordered by the bytes of its keys. */
export type Table = Database<Buffer, Buffer>;

/** The tables of an open data file. */
export interface Tables {
  /** The LMDB environment; closing it closes all tables. */
  readonly root: RootDatabase<Buffer, Buffer>;
  /** Format version and counters. */
  readonly meta: Table;
  /** Key to mod revision, lease id and value. */
  readonly entries: Table;
  /** First and last revision to segment of the history. */
  readonly history: Table;
  /** Lease id to TTL. */
  readonly leases: Table;
  /** Lease id, NUL and key, without a value. */
  readonly leasedKeys: Table;
}

/** Names of all tables in each data file. */
export const TABLE_NAMES = ['meta', 'entries', 'history', 'leases', 'leasedKeys'] as const;

/**
 * Address space of the mapped data file, bytes: far more than a large cluster needs. When the file
 * outgrows its map, LMDB maps the file anew and keeps the old map, so that resident pages of the
 * file count twice in the memory of the process. The size takes neither memory nor disk.
 */
const MAP_BYTES = 4 * 1024 ** 3;

const BINARY = { encoding: 'binary', keyEncoding: 'binary' } as const;

/**
 * Opens or creates the data file. Loads LMDB at the first call, so that a program that never opens
 * a store starts without LMDB.
 * @param sync - False: commits are not flushed, so that a power loss can lose them.
 */
export async function openTables(file: string, sync: boolean): Promise<Tables> {
  const { open } = await import('lmdb');
  // without overlapping sync, the promise of a commit resolves when the commit is durable: LMDB
  // writes the pages, flushes them, then writes the meta page
  const root = open<Buffer, Buffer>({
    path: file,
    noSubdir: true,
    mapSize: MAP_BYTES,
    maxDbs: 8, // five tables, and room for tables of later formats
    overlappingSync: false,
    noSync: !sync,
    eventTurnBatching: false,
    ...BINARY,
  });
  const table = (name: (typeof TABLE_NAMES)[number]): Table =>
    root.openDB<Buffer, Buffer>(name, { ...BINARY });
  return {
    root,
    meta: table('meta'),
    entries: table('entries'),
    history: table('history'),
    leases: table('leases'),
    leasedKeys: table('leasedKeys'),
  };
}

/**
 * Returns the first key in byte order after all keys that start with `prefix`; undefined when no
 * key follows (an empty prefix, or only 0xff bytes).
 */
export function endOfPrefix(prefix: Buffer): Buffer | undefined {
  const end = Buffer.from(prefix);
  while (end.length > 0) {
    const last = end.length - 1;
    const byte = end[last] ?? 0;
    if (byte < 0xff) {
      end[last] = byte + 1;
      return end;
    }
    return endOfPrefix(end.subarray(0, last));
  }
  return undefined;
}
