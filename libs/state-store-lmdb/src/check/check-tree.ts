import type { PageFile } from './page-file.js';

// @see mdb.c: MDB_page, MDB_db, MDB_node; midl.h for the lists of free pages, where -n means "n
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
/** Page number, transaction and page count. */
const OVERFLOW_REFERENCE_BYTES = 24;
const NUMBER_BYTES = 8;
/** Deeper trees exceed the size of any disk. */
const MAX_DEPTH = 32;

/** Page and record counts: as stated by a database, or as found in it. */
interface Totals {
  branch: bigint;
  leaf: bigint;
  overflow: bigint;
  records: bigint;
}

export interface TreeResult {
  readonly rootTransaction: bigint;
  readonly tables: readonly string[];
}

/**
 * Checks the tree of one database and of its nested databases: every page, every record, and the
 * order of all keys.
 */
export class TreeCheck {
  private readonly found: Totals = { branch: 0n, leaf: 0n, overflow: 0n, records: 0n };
  private readonly tables: string[] = [];
  private previous: Buffer | undefined;
  /** Lower bound of the next key, from the branch page above. */
  private lowerBound: Buffer | undefined;

  private constructor(
    private readonly pages: PageFile,
    private readonly listsFreePages: boolean,
  ) {}

  /**
   * @param database - Record of the database.
   * @param transaction - No page may be newer than this transaction.
   * @param listsFreePages - True for the database of free pages: its records are lists of free
   *   pages, keyed by transaction number.
   * @returns The transaction that wrote the root (0 for an empty tree), and the names of nested
   *   databases.
   */
  static run(
    pages: PageFile,
    database: Buffer,
    transaction: bigint,
    listsFreePages = false,
  ): TreeResult {
    const root = database.readBigUInt64LE(40);
    const check = new TreeCheck(pages, listsFreePages);
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
    if (!listsFreePages && database.readUInt16LE(4) !== 0)
      pages.refuse('a table has unexpected flags');
    return { rootTransaction, tables: check.tables };
  }

  /** @returns The transaction that wrote the page. */
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
   * The key between two children is greater than all keys of the first child, and not greater than
   * any key of the second.
   */
  private descend(
    page: Buffer,
    node: number,
    separator: Buffer | undefined,
    transaction: bigint,
    depth: number,
  ): void {
    if (separator !== undefined) {
      if (this.previous !== undefined && this.compare(separator, this.previous) <= 0)
        this.pages.refuse('keys are out of order');
      this.lowerBound = separator;
    }
    this.walk(
      BigInt(page.readUInt32LE(node)) + (BigInt(page.readUInt16LE(node + 4)) << 32n),
      transaction,
      depth + 1,
    );
  }

  private readNodes(page: Buffer, number: bigint): readonly number[] {
    // relative to the end of the header, like the offsets of nodes
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
    const inline = page.subarray(start, end);
    if (flags & NODE_DATABASE) this.tables.push(key.toString('latin1').replace(/\0$/, '')); // the binding includes C's terminating NUL
    if (flags & NODE_DATABASE) this.checkDatabase(inline, flags, transaction, depth, number);
    const data = flags & NODE_BIG_DATA ? this.readOverflow(inline, bytes, transaction) : inline;
    if (this.listsFreePages) this.accountFreePages(data);
  }

  private checkDatabase(
    record: Buffer,
    flags: number,
    transaction: bigint,
    depth: number,
    number: bigint,
  ): void {
    if (flags !== NODE_DATABASE || record.length !== DATABASE_BYTES || depth > MAX_DEPTH)
      this.pages.refuse(`page ${number} holds a corrupt table`);
    TreeCheck.run(this.pages, record, transaction);
  }

  /** @returns The data of the overflow pages; empty unless the caller needs it. */
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
    const expected =
      header.readBigUInt64LE(0) === first &&
      header.readBigUInt64LE(8) === transaction &&
      (header.readUInt16LE(18) & PAGE_KINDS) === PAGE_OVERFLOW &&
      BigInt(header.readUInt32LE(20)) === count;
    if (!expected) this.pages.refuse(`page ${first} is not the one expected`);
    const wanted = this.listsFreePages ? bytes : 0;
    if (!this.listsFreePages)
      this.pages.read(position + PAGE_HEADER_BYTES + bytes, 0, `the end of page ${first}`);
    return this.pages.read(position + PAGE_HEADER_BYTES, wanted, `page ${first}`);
  }

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

  private checkOrder(key: Buffer, number: bigint): void {
    const { previous, lowerBound } = this;
    if (previous !== undefined && this.compare(key, previous) <= 0)
      this.pages.refuse(`keys on page ${number} are out of order`);
    if (lowerBound !== undefined && this.compare(key, lowerBound) < 0)
      this.pages.refuse(`keys on page ${number} are out of order`);
    this.previous = key;
    this.lowerBound = undefined;
  }

  /** The database of free pages is ordered by numbers in machine order, all others by bytes. */
  private compare(a: Buffer, b: Buffer): number {
    if (!this.listsFreePages) return Buffer.compare(a, b);
    if (a.length !== NUMBER_BYTES || b.length !== NUMBER_BYTES)
      this.pages.refuse('a list of free pages has no number');
    const [left, right] = [a.readBigUInt64LE(), b.readBigUInt64LE()];
    return left < right ? -1 : left > right ? 1 : 0;
  }
}
