import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { CloudlessError } from '@cloudless/base';

/** Pages at the end that were given out and became free before they were ever written. */
const MAX_UNWRITTEN_PAGES = 1_000_000;

/**
 * The file of an LMDB environment, read in pieces and never mapped, and an account of its pages.
 */
export class PageFile {
  /** Size of a page; known once the first one was read. */
  pageBytes = 0;
  /** Pages that are entered into the account so far, with the two for the meta data. */
  takenPages = 2;
  private readonly size: number;
  private taken = new Uint8Array(0);

  private constructor(
    private readonly file: string,
    private readonly descriptor: number,
  ) {
    this.size = fstatSync(descriptor).size;
  }

  /** Runs `check` on a file. */
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

  /** @throws that the file is damaged when it has no such bytes. */
  read(position: number, length: number, what: string): Buffer {
    if (position + length > this.size) this.damaged(`it ends before ${what}`);
    const buffer = Buffer.allocUnsafe(length);
    if (readSync(this.descriptor, buffer, 0, length, position) < length)
      this.damaged(`it ends before ${what}`);
    return buffer;
  }

  readPage(page: bigint): Buffer {
    return this.read(Number(page) * this.pageBytes, this.pageBytes, `page ${page}`);
  }

  /** Starts the account. @param lastPage - The last page that may hold anything. */
  expectPages(lastPage: bigint): void {
    if (lastPage > BigInt(Math.ceil(this.size / this.pageBytes) + MAX_UNWRITTEN_PAGES))
      this.damaged(`a last page ${lastPage}`);
    // the first two are for the meta data
    this.taken = new Uint8Array(Number(lastPage) + 1).fill(1, 0, 2);
  }

  /** Enters pages into the account: each page is used once, or free once. */
  take(first: bigint, count: bigint): void {
    if (first < 0n || count < 1n || first + count > BigInt(this.taken.length))
      this.damaged(`page ${first} is none of its pages`);
    const [from, to] = [Number(first), Number(first + count)];
    const twice = this.taken.subarray(from, to).indexOf(1);
    if (twice >= 0) this.damaged(`page ${from + twice} is used twice`);
    this.taken.fill(1, from, to);
    this.takenPages += to - from;
  }

  damaged(how: string): never {
    throw damagedFile(this.file, how);
  }
}

/** The error for a data file that cannot be trusted. */
export function damagedFile(file: string, how: string, cause?: unknown): CloudlessError {
  return new CloudlessError(
    'precondition',
    `data file is damaged: ${file}: ${how}; restore a backup, or move it away to start empty`,
    cause === undefined ? undefined : { cause },
  );
}
