import { CloudlessError } from '@cloudless/base';

/**
 * The storage has lost its files: the next start would not find new writes, or new writes would go
 * into the store of another process. The store refuses every write with this error; reads continue.
 */
export class StorageFault extends CloudlessError {
  /**
   * @param lost - `dataFile`: the file was deleted, moved or replaced; the data that this process
   *   still reads may exist nowhere else. `lock`: the data is in place, but another process may
   *   have opened it. `content`: another program has written to the data file, so reads may return
   *   a mixture.
   */
  constructor(
    readonly lost: 'dataFile' | 'lock' | 'content',
    message: string,
    options?: { readonly cause?: unknown },
  ) {
    super('STORE_UNAVAILABLE', message, options);
  }
}
