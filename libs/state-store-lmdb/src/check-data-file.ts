import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { CloudlessError } from '@cloudless/base';

// Offsets and flags of LMDB's file format, little-endian, 64 bit. @see mdb.c: MDB_page, MDB_meta, MDB_db, MDB_node
const PAGE_HEADER_BYTES = 24;
const META_MAGIC = 0xbeefc0de;
const META_DATABASES = PAGE_HEADER_BYTES + 24;
const DATABASE_BYTES = 48;
const META_LAST_PAGE = META_DATABASES + 2 * DATABASE_BYTES;
const META_TRANSACTION = META_LAST_PAGE + 8;
const META_BYTES = META_TRANSACTION + 8;
const DATABASE_ROOT = 40;
const NO_PAGE = 0xffff_ffff_ffff_ffffn;
const PAGE_BRANCH = 0x01;
const PAGE_LEAF = 0x02;
const PAGE_OVERFLOW = 0x04;
const NODE_HEADER_BYTES = 8;
const NODE_BIG_DATA = 0x01;
const NODE_DATABASE = 0x02;
/** Page number, transaction and page count. */
const OVERFLOW_REFERENCE_BYTES = 24;
/** Deeper trees do not fit on a disk. */
const MAX_DEPTH = 32;

/**
 * Walks all pages in use before LMDB maps the file, because LMDB may crash on a truncated or garbled file, and takes an empty
 * one for new. Reads each page once: about a second per GiB when it is cached.
 * @throws kind `precondition` with the message that the data file is damaged.
 */
export function checkDataFile(file: string): void {
  const descriptor = openSync(file, 'r');
  try {
    new DataFileCheck(file, descriptor, fstatSync(descriptor).size).run();
  } finally {
    closeSync(descriptor);
  }
}

class DataFileCheck {
  private pageBytes = 0;

  constructor(
    private readonly file: string,
    private readonly descriptor: number,
    private readonly size: number,
  ) {}

  run(): void {
    const first = this.read(0, META_BYTES, 'the first page');
    this.checkMeta(first, 'first');
    this.pageBytes = first.readUInt32LE(META_DATABASES);
    if (this.pageBytes < 256 || this.pageBytes > 65_536 || (this.pageBytes & (this.pageBytes - 1)) !== 0)
      this.damaged(`page size ${this.pageBytes}`);
    const second = this.read(this.pageBytes, META_BYTES, 'the second page');
    this.checkMeta(second, 'second');
    const newest = first.readBigUInt64LE(META_TRANSACTION) > second.readBigUInt64LE(META_TRANSACTION) ? first : second;
    for (const index of [0, 1])
      this.checkTree(newest.readBigUInt64LE(META_DATABASES + index * DATABASE_BYTES + DATABASE_ROOT), 0);
  }

  private checkMeta(page: Buffer, which: string): void {
    if (page.readUInt32LE(PAGE_HEADER_BYTES) !== META_MAGIC) this.damaged(`the ${which} page is not LMDB's`);
  }

  private checkTree(root: bigint, depth: number): void {
    if (root === NO_PAGE) return;
    if (depth > MAX_DEPTH) this.damaged('a tree without end');
    const page = this.read(Number(root) * this.pageBytes, this.pageBytes, `page ${root}`);
    const flags = page.readUInt16LE(18);
    if (page.readBigUInt64LE(0) !== root || (flags & (PAGE_BRANCH | PAGE_LEAF)) === 0)
      this.damaged(`page ${root} is not the one expected`);
    for (const node of this.nodes(page, root)) {
      if (flags & PAGE_BRANCH) this.checkTree(childOf(page, node), depth + 1);
      else this.checkLeafNode(page, node, root, depth);
    }
  }

  private nodes(page: Buffer, pageNumber: bigint): readonly number[] {
    const lower = page.readUInt16LE(20); // counted from the end of the header, as are the offsets of nodes
    const upper = page.readUInt16LE(22);
    if (lower > upper || upper + PAGE_HEADER_BYTES > this.pageBytes || lower % 2 !== 0)
      this.damaged(`page ${pageNumber} has a garbled header`);
    return Array.from({ length: lower / 2 }, (_, index) => {
      const node = page.readUInt16LE(PAGE_HEADER_BYTES + 2 * index) + PAGE_HEADER_BYTES;
      if (node + NODE_HEADER_BYTES > this.pageBytes) this.damaged(`page ${pageNumber} points outside of itself`);
      return node;
    });
  }

  private checkLeafNode(page: Buffer, node: number, pageNumber: bigint, depth: number): void {
    const flags = page.readUInt16LE(node + 4);
    const data = node + NODE_HEADER_BYTES + page.readUInt16LE(node + 6);
    const dataBytes = page.readUInt32LE(node);
    const inlineBytes = flags & NODE_BIG_DATA ? OVERFLOW_REFERENCE_BYTES : dataBytes;
    if (data + inlineBytes > this.pageBytes) this.damaged(`page ${pageNumber} holds a record that is too long`);
    if (flags & NODE_BIG_DATA) this.checkOverflow(page.readBigUInt64LE(data), dataBytes);
    else if (flags & NODE_DATABASE) this.checkTree(page.readBigUInt64LE(data + DATABASE_ROOT), depth + 1);
  }

  private checkOverflow(first: bigint, dataBytes: number): void {
    const start = Number(first) * this.pageBytes;
    const header = this.read(start, PAGE_HEADER_BYTES, `page ${first}`);
    if (header.readBigUInt64LE(0) !== first || (header.readUInt16LE(18) & PAGE_OVERFLOW) === 0)
      this.damaged(`page ${first} is not the one expected`);
    if (start + PAGE_HEADER_BYTES + dataBytes > this.size) this.damaged(`a record on page ${first} is cut off`);
  }

  private read(position: number, length: number, what: string): Buffer {
    if (position + length > this.size) this.damaged(`it ends before ${what}`);
    const buffer = Buffer.allocUnsafe(length);
    if (readSync(this.descriptor, buffer, 0, length, position) < length) this.damaged(`it ends before ${what}`);
    return buffer;
  }

  private damaged(how: string): never {
    throw new CloudlessError(
      'precondition',
      `data file is damaged: ${this.file}: ${how}; restore a backup, or move it away to start empty`,
    );
  }
}

/** Page number of a branch node, 48 bits wide. */
function childOf(page: Buffer, node: number): bigint {
  return BigInt(page.readUInt32LE(node)) + (BigInt(page.readUInt16LE(node + 4)) << 32n);
}
