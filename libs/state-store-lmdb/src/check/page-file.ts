import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { CloudlessError } from '@cloudless/base';

/**
 * Limit of pages past the end of the file: LMDB may allocate and free pages there that it never
 * writes. Bounds the memory for a corrupt page number.
 */
const MAX_UNWRITTEN_PAGES = 1_000_000;

/**
 * An LMDB data file that is read in pieces and never mapped. Also records which pages were found,
 * used or free, to detect a page that is used twice.
 */
export class PageFile {
  /** Bytes of a page; set after the first meta page was read. */
  pageBytes = 0;
  /** Pages accounted for so far, including the two meta pages. */
  accountedPages = 2;
  private readonly size: number;
  /** 1 for each page accounted for, by page number. */
  private accounted = new Uint8Array(0);

  private constructor(
    private readonly file: string,
    private readonly descriptor: number,
  ) {
    this.size = fstatSync(descriptor).size;
  }

  /** Opens a file, runs `check`, closes the file and returns the result of `check`. */
  static check<Result>(file: string, check: (pages: PageFile) => Result): Result {
    const descriptor = openSync(file, 'r');
    try {
      return check(new PageFile(file, descriptor));
    } finally {
      closeSync(descriptor);
    }
  }

  /** Size of the file in bytes. */
  get bytes(): number {
    return this.size;
  }

  /**
   * Reads bytes.
   * @param description - Name of the bytes in the error, such as `page 3`.
   * @throws kind `precondition` when the file ends before the last byte.
   */
  read(position: number, length: number, description: string): Buffer {
    if (position + length > this.size) this.refuse(`it ends before ${description}`);
    const buffer = Buffer.allocUnsafe(length);
    if (readSync(this.descriptor, buffer, 0, length, position) < length)
      this.refuse(`it ends before ${description}`);
    return buffer;
  }

  /**
   * Reads a whole page by its number.
   * @param buffer - Has the size of a page.
   */
  readPageInto(page: number, buffer: Buffer): void {
    const { pageBytes, descriptor } = this;
    const position = page * pageBytes;
    const isInFile = position + pageBytes <= this.size;
    if (!isInFile || readSync(descriptor, buffer, 0, pageBytes, position) < pageBytes)
      this.refuse(`it ends before page ${page}`);
  }

  /**
   * Starts the page accounting.
   * @param lastPage - Number of the last page that may have content.
   */
  expectPages(lastPage: number): void {
    if (lastPage > Math.ceil(this.size / this.pageBytes) + MAX_UNWRITTEN_PAGES)
      this.refuse(`its last page would be ${lastPage}`);
    // the first two pages are the meta pages
    this.accounted = new Uint8Array(lastPage + 1).fill(1, 0, 2);
  }

  /**
   * Accounts for `count` pages from number `first`. Each page may be accounted for only once.
   * @throws kind `precondition` when a page was accounted for before or does not exist.
   */
  account(first: number, count: number): void {
    const { accounted } = this;
    if (!(first >= 0 && count >= 1 && first + count <= accounted.length))
      this.refuse(`page ${first} is outside of the file`);
    for (let page = first; page < first + count; page += 1) {
      if (accounted[page] !== 0) this.refuse(`page ${page} is used twice`);
      accounted[page] = 1;
    }
    this.accountedPages += count;
  }

  /** @throws kind `precondition` with {@link createDamageError}, always. */
  refuse(problem: string): never {
    throw createDamageError(this.file, problem);
  }
}

/**
 * Creates the error for a damaged data file.
 * @param problem - A clause about the file, such as `it ends before page 3`.
 */
export function createDamageError(file: string, problem: string, cause?: unknown): CloudlessError {
  return new CloudlessError(
    'precondition',
    `data file is damaged: ${file}: ${problem}; restore a backup, or move the file away to start with an empty store`,
    cause === undefined ? undefined : { cause },
  );
}
