import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { CloudlessError } from '@cloudless/base';

/** Limit of pages at the end that were allocated and freed before they were ever written. */
const MAX_UNWRITTEN_PAGES = 1_000_000;

/**
 * An LMDB data file that is read in pieces and never mapped, and a record of which of its pages are
 * accounted for.
 */
export class PageFile {
  /** Size of a page; set after the first page was read. */
  pageBytes = 0;
  /** Pages accounted for so far, including the two meta pages. */
  accountedPages = 2;
  private readonly size: number;
  private accounted = new Uint8Array(0);

  private constructor(
    private readonly file: string,
    private readonly descriptor: number,
  ) {
    this.size = fstatSync(descriptor).size;
  }

  /** Opens a file, runs `check`, and closes the file. */
  static check<Result>(file: string, check: (pages: PageFile) => Result): Result {
    const descriptor = openSync(file, 'r');
    try {
      return check(new PageFile(file, descriptor));
    } finally {
      closeSync(descriptor);
    }
  }

  /** Size of the file. */
  get bytes(): number {
    return this.size;
  }

  /** Reads bytes. @throws The error about a damaged file when it ends before them. */
  read(position: number, length: number, what: string): Buffer {
    if (position + length > this.size) this.refuse(`it ends before ${what}`);
    const buffer = Buffer.allocUnsafe(length);
    if (readSync(this.descriptor, buffer, 0, length, position) < length)
      this.refuse(`it ends before ${what}`);
    return buffer;
  }

  readPage(page: bigint): Buffer {
    return this.read(Number(page) * this.pageBytes, this.pageBytes, `page ${page}`);
  }

  /** Starts the page accounting. @param lastPage - The last page that may have content. */
  expectPages(lastPage: bigint): void {
    if (lastPage > BigInt(Math.ceil(this.size / this.pageBytes) + MAX_UNWRITTEN_PAGES))
      this.refuse(`its last page would be ${lastPage}`);
    // the first two are the meta pages
    this.accounted = new Uint8Array(Number(lastPage) + 1).fill(1, 0, 2);
  }

  /** Accounts for pages: each page must be used once or free once. */
  account(first: bigint, count: bigint): void {
    if (first < 0n || count < 1n || first + count > BigInt(this.accounted.length))
      this.refuse(`page ${first} is outside of the file`);
    const [from, to] = [Number(first), Number(first + count)];
    const twice = this.accounted.subarray(from, to).indexOf(1);
    if (twice >= 0) this.refuse(`page ${from + twice} is used twice`);
    this.accounted.fill(1, from, to);
    this.accountedPages += to - from;
  }

  refuse(problem: string): never {
    throw createDamageError(this.file, problem);
  }
}

/** Creates the error for a data file that cannot be trusted. */
export function createDamageError(file: string, problem: string, cause?: unknown): CloudlessError {
  return new CloudlessError(
    'precondition',
    `data file is damaged: ${file}: ${problem}; restore a backup, or move the file away to start with an empty store`,
    cause === undefined ? undefined : { cause },
  );
}
