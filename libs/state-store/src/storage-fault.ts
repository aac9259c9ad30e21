import { CloudlessError } from '@cloudless/base';

/**
 * The files of a storage are no longer its own: what is written now would not be there at the next
 * start, or would be written into the store of another process. Every write is refused with this
 * error; reads go on.
 */
export class StorageFault extends CloudlessError {
  /**
   * @param lost - `dataFile`: it was deleted, moved or replaced, and what this process still reads
   *   may exist nowhere else. `lock`: the data is in its place, but another process may have opened
   *   it. `content`: another program has written to the data file, and what is read here may be a
   *   mixture.
   */
  constructor(
    readonly lost: 'dataFile' | 'lock' | 'content',
    message: string,
    options?: { readonly cause?: unknown },
  ) {
    super('unavailable', message, options);
  }
}
