import { DATABASE_BYTES, PAGE_HEADER_BYTES, TreeCheck } from './check-tree.js';
import { PageFile } from './page-file.js';
import { TABLE_NAMES } from './tables.js';

// Offsets of LMDB's file format, little-endian, 64 bit. @see mdb.c: MDB_meta
const META_MAGIC = 0xbeefc0de;
const META_VERSION = PAGE_HEADER_BYTES + 4;
const META_DATABASES = PAGE_HEADER_BYTES + 24;
const META_LAST_PAGE = META_DATABASES + 2 * DATABASE_BYTES;
const META_TRANSACTION = META_LAST_PAGE + 8;
const META_BYTES = META_TRANSACTION + 8;
const DATA_VERSION = 2;

/** How much of a data file is in use. */
export interface FileUse {
  /** Size of the file. */
  readonly bytes: number;
  /** Bytes that no record takes. LMDB uses them again, and never gives them back. */
  readonly freeBytes: number;
}

interface Meta {
  readonly pageBytes: number;
  /** The lists of free pages, and the table of tables. */
  readonly databases: readonly [Buffer, Buffer];
  readonly lastPage: bigint;
  readonly transaction: bigint;
}

/**
 * Walks all pages in use before LMDB maps the file, because LMDB takes what it finds for granted:
 * it may crash on a truncated or garbled file, writes over pages that a garbled list calls free,
 * and takes an empty file for new. Each page must be in its place, used or free once, not newer
 * than what points to it, with its keys in order and as many as its table says. What is in the
 * records is checked by `checkRecords`. Reads each page once: about a second per GiB when it is
 * cached.
 * @returns How much of the file is in use.
 * @throws kind `precondition` with the message that the data file is damaged.
 */
export function checkDataFile(file: string): FileUse {
  return PageFile.check(file, (pages) => {
    const newest = newestMeta(pages);
    pages.expectPages(newest.lastPage);
    const [free, main] = newest.databases;
    const { written, tables } = TreeCheck.run(pages, main, newest.transaction);
    const usedBytes = pages.takenPages * pages.pageBytes;
    const lists = TreeCheck.run(pages, free, newest.transaction, true);
    if (tables.join() !== TABLE_NAMES.toSorted().join())
      pages.damaged(`its tables are ${tables.join(', ') || 'none'}`);
    // Every transaction writes a root anew: else this is not the page of its meta data.
    if (written !== newest.transaction && lists.written !== newest.transaction)
      pages.damaged(`transaction ${newest.transaction} has written nothing`);
    return { bytes: pages.bytes, freeBytes: Math.max(0, pages.bytes - usedBytes) };
  });
}

/**
 * Each transaction writes its meta data over that of the one before the last, so that the two are
 * of neighbours.
 */
function newestMeta(pages: PageFile): Meta {
  const first = readMeta(pages, 0, 'first');
  pages.pageBytes = first.pageBytes;
  if (
    first.pageBytes < 256 ||
    first.pageBytes > 65_536 ||
    (first.pageBytes & (first.pageBytes - 1)) !== 0
  )
    pages.damaged(`page size ${first.pageBytes}`);
  const second = readMeta(pages, first.pageBytes, 'second');
  const [older, newer] = first.transaction > second.transaction ? [second, first] : [first, second];
  const inPlace =
    first.transaction % 2n === 0n && (second.transaction % 2n === 1n || second.transaction === 0n);
  if (!inPlace || newer.transaction - older.transaction > 1n || flagsOf(older) !== flagsOf(newer))
    pages.damaged(
      `transactions ${first.transaction} and ${second.transaction} do not follow each other`,
    );
  return newer;
}

/** Page size and flags of the environment; they never change. */
function flagsOf({ databases: [free] }: Meta): string {
  return free.toString('hex', 0, 6);
}

function readMeta(pages: PageFile, position: number, which: string): Meta {
  const page = pages.read(position, META_BYTES, `the ${which} page`);
  if (
    page.readUInt32LE(PAGE_HEADER_BYTES) !== META_MAGIC ||
    page.readUInt32LE(META_VERSION) !== DATA_VERSION
  )
    pages.damaged(`the ${which} page is not LMDB's`);
  const database = (index: number): Buffer =>
    page.subarray(
      META_DATABASES + index * DATABASE_BYTES,
      META_DATABASES + (index + 1) * DATABASE_BYTES,
    );
  return {
    pageBytes: page.readUInt32LE(META_DATABASES),
    databases: [database(0), database(1)],
    lastPage: page.readBigUInt64LE(META_LAST_PAGE),
    transaction: page.readBigUInt64LE(META_TRANSACTION),
  };
}
