import type { PageFile } from './page-file.js';

// Offsets and constants of pages, databases and nodes in the file format of LMDB.
// @see mdb.c: MDB_page, MDB_db, MDB_node; midl.h for the lists of free pages, in which -n means "n
//   pages from the next number on"
export const PAGE_HEADER_BYTES = 24;
export const DATABASE_BYTES = 48;
const NO_PAGE = 0xffff_ffff_ffff_ffffn;
const TWO_TO_32 = 2 ** 32;
const PAGE_BRANCH = 0x01;
const PAGE_LEAF = 0x02;
const PAGE_OVERFLOW = 0x04;
const PAGE_KINDS = PAGE_BRANCH | PAGE_LEAF | PAGE_OVERFLOW;
const NODE_HEADER_BYTES = 8;
const NODE_BIG_DATA = 0x01;
const NODE_DATABASE = 0x02;
/** Bytes of page number, transaction and page count. */
const OVERFLOW_REFERENCE_BYTES = 24;
const NUMBER_BYTES = 8;
/** Depth limit. A deeper tree would exceed the size of any disk. */
const MAX_DEPTH = 32;

/** Numbers of pages and records of a database. */
interface Totals {
  branch: number;
  leaf: number;
  overflow: number;
  records: number;
}

/**
 * Called with every record of a table, in key order. Key and record are parts of buffers that are
 * only valid during the call. No objects for them: there may be millions of records.
 */
export type RecordVisitor = (
  keys: Buffer,
  keyStart: number,
  keyEnd: number,
  records: Buffer,
  recordStart: number,
  recordEnd: number,
) => void;

/** Work of a check beside that on pages. */
export interface TreeCheckOptions {
  /**
   * True for the database of free pages: its records are lists of free pages, keyed by transaction
   * number.
   */
  readonly listsFreePages?: boolean;
  /** By name of a nested database. Only records of these databases are read as a whole. */
  readonly visitors?: ReadonlyMap<string, RecordVisitor>;
  /** Visitor of the database itself. */
  readonly visit?: RecordVisitor | undefined;
}

/** Result of {@link TreeCheck.run}. */
export interface TreeResult {
  /** Transaction that wrote the root page; 0 for an empty tree. */
  readonly rootTransaction: number;
  /** Names of the nested databases, in key order. */
  readonly tables: readonly string[];
}

/**
 * Checks the tree of one database and of its nested databases: every page, every record, and the
 * order of all keys.
 */
export class TreeCheck {
  /** Numbers found so far. */
  private readonly found: Totals = { branch: 0, leaf: 0, overflow: 0, records: 0 };
  private readonly tables: string[] = [];
  /** The page of each depth that was read last. */
  private readonly buffers: Buffer[] = [];
  /** The last key of the leaf pages before the current one; empty before the first key. */
  private readonly lastKey: Buffer;
  private lastKeyBytes = 0;
  /** Lower bound of the next key, from the branch page above: a part of `boundPage`, if set. */
  private boundPage: Buffer | undefined;
  private boundStart = 0;
  private boundEnd = 0;

  private readonly listsFreePages: boolean;

  private constructor(
    private readonly pages: PageFile,
    private readonly options: TreeCheckOptions,
  ) {
    this.listsFreePages = options.listsFreePages === true;
    this.lastKey = Buffer.alloc(pages.pageBytes);
  }

  /**
   * Checks one database.
   * @param database - Record of the database.
   * @param transaction - Newest transaction that may have written a page.
   * @throws kind `precondition` with the message that the data file is damaged.
   */
  static run(
    pages: PageFile,
    database: Buffer,
    transaction: number,
    options: TreeCheckOptions = {},
  ): TreeResult {
    const check = new TreeCheck(pages, options);
    const rootTransaction =
      database.readBigUInt64LE(40) === NO_PAGE
        ? 0
        : check.walk(readNumber(database, 40), transaction, 1);
    const stated: Totals = {
      branch: readNumber(database, 8),
      leaf: readNumber(database, 16),
      overflow: readNumber(database, 24),
      records: readNumber(database, 32),
    };
    for (const key of ['branch', 'leaf', 'overflow', 'records'] as const)
      if (stated[key] !== check.found[key])
        pages.refuse(
          `a table has ${check.found[key]} ${key} pages or records instead of ${stated[key]}`,
        );
    if (options.listsFreePages !== true && database.readUInt16LE(4) !== 0)
      pages.refuse('a table has unexpected flags');
    return { rootTransaction, tables: check.tables };
  }

  /**
   * Checks a page and all pages below.
   * @param number - Number of the page.
   * @param newest - Newest transaction that may have written the page.
   * @param depth - Depth of the page in the tree; the root has 1.
   * @returns The transaction that wrote the page.
   */
  private walk(number: number, newest: number, depth: number): number {
    if (depth > MAX_DEPTH) this.pages.refuse('a tree is too deep');
    this.pages.account(number, 1);
    const page = this.readPage(number, depth);
    const kind = page.readUInt16LE(18) & PAGE_KINDS;
    const transaction = readNumber(page, 8);
    if (
      readNumber(page, 0) !== number ||
      transaction > newest ||
      (kind !== PAGE_BRANCH && kind !== PAGE_LEAF)
    )
      this.pages.refuse(`page ${number} is not the one expected`);
    const count = this.countNodes(page, number);
    if (kind === PAGE_LEAF) this.checkLeaf(page, count, number, transaction, depth);
    else {
      this.found.branch += 1;
      for (let index = 0; index < count; index += 1)
        this.descend(page, index, number, transaction, depth);
    }
    return transaction;
  }

  /** Reads a page over the page of the same depth that was read before. */
  private readPage(number: number, depth: number): Buffer {
    const buffer = (this.buffers[depth] ??= Buffer.allocUnsafeSlow(this.pages.pageBytes));
    this.pages.readPageInto(number, buffer);
    return buffer;
  }

  /**
   * Checks a child of a branch page.
   * @param index - Position of the child. The key of its node is greater than all keys of the
   *   previous child and not greater than any key of this child; the first child has none.
   */
  private descend(
    page: Buffer,
    index: number,
    number: number,
    transaction: number,
    depth: number,
  ): void {
    const node = this.readNode(page, index, number);
    const start = node + NODE_HEADER_BYTES;
    const end = this.findKeyEnd(page, node, number);
    if (index > 0) {
      const { lastKey, lastKeyBytes } = this;
      if (lastKeyBytes > 0 && this.compare(page, start, end, lastKey, 0, lastKeyBytes) <= 0)
        this.pages.refuse('keys are out of order');
      [this.boundPage, this.boundStart, this.boundEnd] = [page, start, end];
    }
    const child = page.readUInt32LE(node) + page.readUInt16LE(node + 4) * TWO_TO_32;
    this.walk(child, transaction, depth + 1);
  }

  /** Returns the number of nodes of a page. */
  private countNodes(page: Buffer, number: number): number {
    // relative to the end of the page header, as the offsets of nodes are
    const lower = page.readUInt16LE(20);
    const upper = page.readUInt16LE(22);
    if (
      lower > upper ||
      upper + PAGE_HEADER_BYTES > this.pages.pageBytes ||
      lower % 2 !== 0 ||
      lower === 0
    )
      this.pages.refuse(`page ${number} has a corrupt header`);
    return lower / 2;
  }

  /** Returns the offset of a node in a page. */
  private readNode(page: Buffer, index: number, number: number): number {
    const offset = page.readUInt16LE(PAGE_HEADER_BYTES + 2 * index);
    const node = offset + PAGE_HEADER_BYTES;
    if (offset < page.readUInt16LE(22) || node + NODE_HEADER_BYTES > this.pages.pageBytes)
      this.pages.refuse(`page ${number} points outside of itself`);
    return node;
  }

  /** Returns the end of the key of a node, which begins after the header of the node. */
  private findKeyEnd(page: Buffer, node: number, number: number): number {
    const end = node + NODE_HEADER_BYTES + page.readUInt16LE(node + 6);
    if (end > this.pages.pageBytes)
      this.pages.refuse(`page ${number} holds a key that is too long`);
    return end;
  }

  /** Checks the nodes of a leaf page: key order, values, overflow pages, nested databases. */
  private checkLeaf(
    page: Buffer,
    count: number,
    number: number,
    transaction: number,
    depth: number,
  ): void {
    this.found.leaf += 1;
    let previous = this.lastKey;
    let previousStart = 0;
    let previousEnd = this.lastKeyBytes;
    for (let index = 0; index < count; index += 1) {
      const node = this.readNode(page, index, number);
      const start = node + NODE_HEADER_BYTES;
      const end = this.findKeyEnd(page, node, number);
      const isFirst = previousEnd === previousStart;
      if (!isFirst && this.compare(page, start, end, previous, previousStart, previousEnd) <= 0)
        this.pages.refuse(`keys on page ${number} are out of order`);
      if (this.boundPage !== undefined) this.checkBound(page, start, end, number);
      this.checkRecord(page, node, end, number, transaction, depth);
      [previous, previousStart, previousEnd] = [page, start, end];
    }
    this.lastKeyBytes = previous.copy(this.lastKey, 0, previousStart, previousEnd);
  }

  /** Checks that the first key of a child is not below the key in its branch page. */
  private checkBound(page: Buffer, start: number, end: number, number: number): void {
    const { boundPage, boundStart, boundEnd } = this;
    if (boundPage === undefined) return;
    if (this.compare(page, start, end, boundPage, boundStart, boundEnd) < 0)
      this.pages.refuse(`keys on page ${number} are out of order`);
    this.boundPage = undefined;
  }

  /** Checks a node of a leaf page: value, overflow pages, nested database. */
  private checkRecord(
    page: Buffer,
    node: number,
    keyEnd: number,
    number: number,
    transaction: number,
    depth: number,
  ): void {
    this.found.records += 1;
    const flags = page.readUInt16LE(node + 4);
    const keyStart = node + NODE_HEADER_BYTES;
    const bytes = page.readUInt32LE(node);
    const end = keyEnd + (flags & NODE_BIG_DATA ? OVERFLOW_REFERENCE_BYTES : bytes);
    if (end > this.pages.pageBytes || (flags & ~(NODE_BIG_DATA | NODE_DATABASE)) !== 0)
      this.pages.refuse(`page ${number} holds a record that is too long`);
    if (flags & NODE_DATABASE)
      this.checkDatabase(
        page.subarray(keyStart, keyEnd),
        page.subarray(keyEnd, end),
        flags,
        transaction,
        depth,
        number,
      );
    if (flags & NODE_BIG_DATA) {
      const data = this.readOverflow(page.subarray(keyEnd, end), bytes, transaction);
      if (this.listsFreePages) this.accountFreePages(data);
      this.options.visit?.(page, keyStart, keyEnd, data, 0, data.length);
    } else {
      if (this.listsFreePages) this.accountFreePages(page.subarray(keyEnd, end));
      this.options.visit?.(page, keyStart, keyEnd, page, keyEnd, end);
    }
  }

  private checkDatabase(
    key: Buffer,
    record: Buffer,
    flags: number,
    transaction: number,
    depth: number,
    number: number,
  ): void {
    if (flags !== NODE_DATABASE || record.length !== DATABASE_BYTES || depth > MAX_DEPTH)
      this.pages.refuse(`page ${number} holds a corrupt table`);
    // the Node.js binding stores table names with the terminating NUL of C
    const name = key.toString('latin1').replace(/\0$/, '');
    this.tables.push(name);
    TreeCheck.run(this.pages, record, transaction, { visit: this.options.visitors?.get(name) });
  }

  /**
   * Checks the overflow pages of a large value.
   * @param bytes - Length of the value.
   * @returns The value; an empty buffer where nobody needs the value, to save time.
   */
  private readOverflow(reference: Buffer, bytes: number, newest: number): Buffer {
    const first = readNumber(reference, 0);
    const transaction = readNumber(reference, 8);
    const count = readNumber(reference, 16);
    const capacity = count * this.pages.pageBytes - PAGE_HEADER_BYTES;
    if (transaction > newest || bytes > capacity)
      this.pages.refuse(`a record on page ${first} is truncated`);
    this.pages.account(first, count);
    this.found.overflow += count;
    const position = first * this.pages.pageBytes;
    const header = this.pages.read(position, PAGE_HEADER_BYTES, `page ${first}`);
    const isExpected =
      readNumber(header, 0) === first &&
      readNumber(header, 8) === transaction &&
      (header.readUInt16LE(18) & PAGE_KINDS) === PAGE_OVERFLOW &&
      header.readUInt32LE(20) === count;
    if (!isExpected) this.pages.refuse(`page ${first} is not the one expected`);
    const isRead = this.listsFreePages || this.options.visit !== undefined;
    const neededBytes = isRead ? bytes : 0;
    if (!isRead)
      this.pages.read(position + PAGE_HEADER_BYTES + bytes, 0, `the end of page ${first}`);
    return this.pages.read(position + PAGE_HEADER_BYTES, neededBytes, `page ${first}`);
  }

  /** Accounts for the pages of one list of free pages. */
  private accountFreePages(list: Buffer): void {
    const count = list.length < NUMBER_BYTES ? -1 : Number(list.readBigUInt64LE(0));
    if (count < 0 || (count + 1) * NUMBER_BYTES > list.length)
      this.pages.refuse('a list of free pages is truncated');
    for (let index = 1; index <= count; index += 1) {
      const number = Number(list.readBigInt64LE(index * NUMBER_BYTES));
      if (number > 0) this.pages.account(number, 1);
      if (number >= 0) continue;
      index += 1;
      if (index > count) this.pages.refuse('a list of free pages is corrupt');
      this.pages.account(Number(list.readBigInt64LE(index * NUMBER_BYTES)), -number);
    }
  }

  /** Compares keys: numbers in machine byte order in the database of free pages, else bytes. */
  private compare(
    a: Buffer,
    aStart: number,
    aEnd: number,
    b: Buffer,
    bStart: number,
    bEnd: number,
  ): number {
    if (!this.listsFreePages) return compareBytes(a, aStart, aEnd, b, bStart, bEnd);
    if (aEnd - aStart !== NUMBER_BYTES || bEnd - bStart !== NUMBER_BYTES)
      this.pages.refuse('a list of free pages has no number');
    return readNumber(a, aStart) - readNumber(b, bStart);
  }
}

/** Compares bytes. Faster than the native function for the few tens of bytes of a key. */
function compareBytes(
  a: Buffer,
  aStart: number,
  aEnd: number,
  b: Buffer,
  bStart: number,
  bEnd: number,
): number {
  const count = Math.min(aEnd - aStart, bEnd - bStart);
  for (let index = 0; index < count; index += 1) {
    const difference = (a[aStart + index] ?? 0) - (b[bStart + index] ?? 0);
    if (difference !== 0) return difference;
  }
  return aEnd - aStart - (bEnd - bStart);
}

/** Reads 64 bits. A number of 2^53 or more, which only a corrupt file has, is rounded. */
function readNumber(bytes: Buffer, offset: number): number {
  return bytes.readUInt32LE(offset) + bytes.readUInt32LE(offset + 4) * TWO_TO_32;
}
