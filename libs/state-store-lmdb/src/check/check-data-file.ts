import { TABLE_NAMES } from '../engine/tables.js';
import { EntrySums, type EntryConsumer } from './entry-sums.js';
import { DATABASE_BYTES, PAGE_HEADER_BYTES, TreeCheck } from './check-tree.js';
import { PageFile } from './page-file.js';

// Offsets and constants of the meta pages in the file format of LMDB, little-endian, 64 bit.
// @see mdb.c: MDB_meta
const META_MAGIC = 0xbeefc0de;
const META_VERSION = PAGE_HEADER_BYTES + 4;
const META_DATABASES = PAGE_HEADER_BYTES + 24;
const META_LAST_PAGE = META_DATABASES + 2 * DATABASE_BYTES;
const META_TRANSACTION = META_LAST_PAGE + 8;
const META_BYTES = META_TRANSACTION + 8;
const DATA_VERSION = 2;

/** Space of a data file. */
export interface FileUse {
  /** Size of the file in bytes. */
  readonly bytes: number;
  /** Bytes of free pages. LMDB reuses free pages but never shrinks the file. */
  readonly freeBytes: number;
}

/** Result of the check of a data file. */
export interface CheckedFile extends FileUse {
  /** Sums of the entries, which `checkRecords` compares with the counters of the store. */
  readonly sums: EntrySums;
}

/** Content of a meta page. */
interface Meta {
  readonly pageBytes: number;
  /** The database of free pages, and the table of tables. */
  readonly databases: readonly [Buffer, Buffer];
  /** Number of the last page in use. */
  readonly lastPage: number;
  /** Number of the transaction that wrote the meta page. */
  readonly transaction: number;
}

/**
 * Checks all used pages of a data file before LMDB maps the file. LMDB does not validate the file:
 * LMDB may crash on a truncated or corrupt file, overwrites pages that a corrupt free list
 * contains, and treats an empty file as a new one. Each page must be in its place, used or free
 * exactly once, and not newer than the page that refers to it; the keys of a page must be in order;
 * and each table must have the stated number of pages. Sums up the records on the way;
 * `checkRecords` checks what follows from the sums. Reads each page once: a few seconds per GiB when
 * the file is cached. Blocks the event loop.
 * @param consumer - Gets the entries, before it is known whether the file is intact.
 * @returns Used and free space of the file, and the sums.
 * @throws kind `precondition` with the message that the data file is damaged.
 */
export function checkDataFile(file: string, consumer?: Pick<EntryConsumer, 'add'>): CheckedFile {
  return PageFile.check(file, (pages) => {
    const newest = readNewestMeta(pages);
    pages.expectPages(newest.lastPage);
    const [free, main] = newest.databases;
    const sums = new EntrySums(consumer);
    const { visitors } = sums;
    const { rootTransaction, tables } = TreeCheck.run(pages, main, newest.transaction, {
      visitors,
    });
    const usedBytes = pages.accountedPages * pages.pageBytes;
    const freeLists = TreeCheck.run(pages, free, newest.transaction, {
      listsFreePages: true,
    });
    if (tables.join() !== TABLE_NAMES.toSorted().join())
      pages.refuse(`its tables are ${tables.join(', ') || 'none'}`);
    // every transaction rewrites at least one root; otherwise the meta page belongs to another
    // state
    if (rootTransaction !== newest.transaction && freeLists.rootTransaction !== newest.transaction)
      pages.refuse(`transaction ${newest.transaction} has written nothing`);
    return { bytes: pages.bytes, freeBytes: Math.max(0, pages.bytes - usedBytes), sums };
  });
}

/**
 * Reads both meta pages and returns the newer. Each transaction overwrites the meta page of the
 * transaction before the last, so the two meta pages belong to consecutive transactions.
 */
function readNewestMeta(pages: PageFile): Meta {
  const first = readMeta(pages, 0, 'first');
  pages.pageBytes = first.pageBytes;
  if (
    first.pageBytes < 256 ||
    first.pageBytes > 65_536 ||
    (first.pageBytes & (first.pageBytes - 1)) !== 0
  )
    pages.refuse(`page size ${first.pageBytes}`);
  const second = readMeta(pages, first.pageBytes, 'second');
  const [older, newer] = first.transaction > second.transaction ? [second, first] : [first, second];
  const inPlace =
    first.transaction % 2 === 0 && (second.transaction % 2 === 1 || second.transaction === 0);
  if (!inPlace || newer.transaction - older.transaction > 1 || getFlags(older) !== getFlags(newer))
    pages.refuse(
      `transactions ${first.transaction} and ${second.transaction} do not follow each other`,
    );
  return newer;
}

/** Returns page size and flags of the environment, which no transaction changes. */
function getFlags({ databases: [free] }: Meta): string {
  return free.toString('hex', 0, 6);
}

function readMeta(pages: PageFile, position: number, which: string): Meta {
  const page = pages.read(position, META_BYTES, `the ${which} page`);
  if (
    page.readUInt32LE(PAGE_HEADER_BYTES) !== META_MAGIC ||
    page.readUInt32LE(META_VERSION) !== DATA_VERSION
  )
    pages.refuse(`the ${which} page is not LMDB's`);
  const database = (index: number): Buffer =>
    page.subarray(
      META_DATABASES + index * DATABASE_BYTES,
      META_DATABASES + (index + 1) * DATABASE_BYTES,
    );
  return {
    pageBytes: page.readUInt32LE(META_DATABASES),
    databases: [database(0), database(1)],
    lastPage: Number(page.readBigUInt64LE(META_LAST_PAGE)),
    transaction: Number(page.readBigUInt64LE(META_TRANSACTION)),
  };
}
