import type { PageFile } from './page-file.js';

// Offsets and constants of pages, databases and nodes in the file format of LMDB.
// @see mdb.c: MDB_page, MDB_db, MDB_node; midl.h for the lists of free pages, in which -n means "n
//   pages from the next number on"
export const PAGE_HEADER_BYTES = 24;
export const DATABASE_BYTES = 48;
const NO_PAGE = 0xffff_ffff_ffff_ffffn;
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
  branch: bigint;
  leaf: bigint;
  overflow: bigint;
  records: bigint;
}

/** Called with every record of a table, in key order. The buffers are read-only. */
export type RecordVisitor = (key: Buffer, record: Buffer) => void;

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
  readonly rootTransaction: bigint;
  /** Names of the nested databases, in key order. */
  readonly tables: readonly string[];
}

/**
 * Checks the tree of one database and of its nested databases: every page, every record, and the
 * order of all keys.
 */
export class TreeCheck {
  /** Numbers found so far. */
  private readonly found: Totals = { branch: 0n, leaf: 0n, overflow: 0n, records: 0n };
  private readonly tables: string[] = [];
  private previousKey: Buffer | undefined;
  /** Lower bound of the next key, from the branch page above. */
  private lowerBound: Buffer | undefined;

  private readonly listsFreePages: boolean;

  private constructor(
    private readonly pages: PageFile,
    private readonly options: TreeCheckOptions,
  ) {
    this.listsFreePages = options.listsFreePages === true;
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
    transaction: bigint,
    options: TreeCheckOptions = {},
  ): TreeResult {
    const root = database.readBigUInt64LE(40);
    const check = new TreeCheck(pages, options);
    const rootTransaction = root === NO_PAGE ? 0n : check.walk(root, transaction, 1);
    const stated: Totals = {
      branch: database.readBigUInt64LE(8),
      leaf: database.readBigUInt64LE(16),
      overflow: database.readBigUInt64LE(24),
      records: database.readBigUInt64LE(32),
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
  private walk(number: bigint, newest: bigint, depth: number): bigint {
    if (depth > MAX_DEPTH) this.pages.refuse('a tree is too deep');
    this.pages.account(number, 1n);
    const page = this.pages.readPage(number);
    const kind = page.readUInt16LE(18) & PAGE_KINDS;
    const transaction = page.readBigUInt64LE(8);
    if (
      page.readBigUInt64LE(0) !== number ||
      transaction > newest ||
      (kind !== PAGE_BRANCH && kind !== PAGE_LEAF)
    )
      this.pages.refuse(`page ${number} is not the one expected`);
    const nodes = this.readNodes(page, number);
    this.found[kind === PAGE_BRANCH ? 'branch' : 'leaf'] += 1n;
    for (const [index, node] of nodes.entries()) {
      const key = this.readKey(page, node, number);
      if (kind === PAGE_LEAF) this.checkRecord(page, node, key, number, transaction, depth);
      else this.descend(page, node, index === 0 ? undefined : key, transaction, depth);
    }
    return transaction;
  }

  /**
   * Checks the child of a branch page.
   * @param node - Offset of the node in the page.
   * @param separator - Key of the node, which is greater than all keys of the previous child and
   *   not greater than any key of this child. Undefined for the first child.
   */
  private descend(
    page: Buffer,
    node: number,
    separator: Buffer | undefined,
    transaction: bigint,
    depth: number,
  ): void {
    if (separator !== undefined) {
      if (this.previousKey !== undefined && this.compare(separator, this.previousKey) <= 0)
        this.pages.refuse('keys are out of order');
      this.lowerBound = separator;
    }
    this.walk(
      BigInt(page.readUInt32LE(node)) + (BigInt(page.readUInt16LE(node + 4)) << 32n),
      transaction,
      depth + 1,
    );
  }

  /** Returns the offsets of the nodes in a page. */
  private readNodes(page: Buffer, number: bigint): readonly number[] {
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
    return Array.from({ length: lower / 2 }, (_, index) => {
      const offset = page.readUInt16LE(PAGE_HEADER_BYTES + 2 * index);
      const node = offset + PAGE_HEADER_BYTES;
      if (offset < upper || node + NODE_HEADER_BYTES > this.pages.pageBytes)
        this.pages.refuse(`page ${number} points outside of itself`);
      return node;
    });
  }

  private readKey(page: Buffer, node: number, number: bigint): Buffer {
    const start = node + NODE_HEADER_BYTES;
    const end = start + page.readUInt16LE(node + 6);
    if (end > this.pages.pageBytes)
      this.pages.refuse(`page ${number} holds a key that is too long`);
    return page.subarray(start, end);
  }

  /** Checks one node of a leaf page: key order, value, overflow pages, nested database. */
  private checkRecord(
    page: Buffer,
    node: number,
    key: Buffer,
    number: bigint,
    transaction: bigint,
    depth: number,
  ): void {
    this.checkOrder(key, number);
    this.found.records += 1n;
    const flags = page.readUInt16LE(node + 4);
    const start = node + NODE_HEADER_BYTES + key.length;
    const bytes = page.readUInt32LE(node);
    const end = start + (flags & NODE_BIG_DATA ? OVERFLOW_REFERENCE_BYTES : bytes);
    if (end > this.pages.pageBytes || (flags & ~(NODE_BIG_DATA | NODE_DATABASE)) !== 0)
      this.pages.refuse(`page ${number} holds a record that is too long`);
    const inlineData = page.subarray(start, end);
    if (flags & NODE_DATABASE)
      this.checkDatabase(key, inlineData, flags, transaction, depth, number);
    const data =
      flags & NODE_BIG_DATA ? this.readOverflow(inlineData, bytes, transaction) : inlineData;
    if (this.listsFreePages) this.accountFreePages(data);
    this.options.visit?.(key, data);
  }

  private checkDatabase(
    key: Buffer,
    record: Buffer,
    flags: number,
    transaction: bigint,
    depth: number,
    number: bigint,
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
  private readOverflow(reference: Buffer, bytes: number, newest: bigint): Buffer {
    const first = reference.readBigUInt64LE(0);
    const transaction = reference.readBigUInt64LE(8);
    const count = reference.readBigUInt64LE(16);
    const capacity = count * BigInt(this.pages.pageBytes) - BigInt(PAGE_HEADER_BYTES);
    if (transaction > newest || BigInt(bytes) > capacity)
      this.pages.refuse(`a record on page ${first} is truncated`);
    this.pages.account(first, count);
    this.found.overflow += count;
    const position = Number(first) * this.pages.pageBytes;
    const header = this.pages.read(position, PAGE_HEADER_BYTES, `page ${first}`);
    const isExpected =
      header.readBigUInt64LE(0) === first &&
      header.readBigUInt64LE(8) === transaction &&
      (header.readUInt16LE(18) & PAGE_KINDS) === PAGE_OVERFLOW &&
      BigInt(header.readUInt32LE(20)) === count;
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
      const number = list.readBigInt64LE(index * NUMBER_BYTES);
      if (number > 0n) this.pages.account(number, 1n);
      if (number >= 0n) continue;
      index += 1;
      if (index > count) this.pages.refuse('a list of free pages is corrupt');
      this.pages.account(list.readBigInt64LE(index * NUMBER_BYTES), -number);
    }
  }

  /** Checks that a key of a leaf page is greater than all keys before. */
  private checkOrder(key: Buffer, number: bigint): void {
    const { previousKey, lowerBound } = this;
    if (previousKey !== undefined && this.compare(key, previousKey) <= 0)
      this.pages.refuse(`keys on page ${number} are out of order`);
    if (lowerBound !== undefined && this.compare(key, lowerBound) < 0)
      this.pages.refuse(`keys on page ${number} are out of order`);
    this.previousKey = key;
    this.lowerBound = undefined;
  }

  /** Compares keys: numbers in machine byte order in the database of free pages, else bytes. */
  private compare(a: Buffer, b: Buffer): number {
    if (!this.listsFreePages) return Buffer.compare(a, b);
    if (a.length !== NUMBER_BYTES || b.length !== NUMBER_BYTES)
      this.pages.refuse('a list of free pages has no number');
    const [left, right] = [a.readBigUInt64LE(), b.readBigUInt64LE()];
    return left < right ? -1 : left > right ? 1 : 0;
  }
}
