import type { Database, RootDatabase } from 'lmdb';

/** A table with binary keys and values, ordered by the bytes of its keys. */
export type Table = Database<Buffer, Buffer>;

/** The tables of a data file. */
export interface Tables {
  readonly root: RootDatabase<Buffer, Buffer>;
  /** The format version and the counters. */
  readonly meta: Table;
  /** Key to entry. */
  readonly entries: Table;
  /** Segments of the history. */
  readonly history: Table;
  /** Lease id to TTL. */
  readonly leases: Table;
  /** `lease NUL key`, without a value. */
  readonly leasedKeys: Table;
}

export const TABLE_NAMES = ['meta', 'entries', 'history', 'leases', 'leasedKeys'] as const;

const BINARY = { encoding: 'binary', keyEncoding: 'binary' } as const;

/**
 * Opens or creates the data file. Loads LMDB at the first call, so that a program that never opens
 * a store starts without LMDB.
 * @param sync - False: commits are not flushed. Only for data that need not survive the machine.
 */
export async function openTables(file: string, sync: boolean): Promise<Tables> {
  const { open } = await import('lmdb');
  // Without overlapping sync, a commit's promise resolves when the commit is durable: pages, flush,
  // then the meta page.
  const root = open<Buffer, Buffer>({
    path: file,
    noSubdir: true,
    maxDbs: 8,
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
 * Returns the first key in byte order after all keys that start with `prefix`; undefined when there
 * is none.
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
