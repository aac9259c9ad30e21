import { CloudlessError, type StopSignal } from '@cloudless/base';

export interface PushQueueOptions {
  /** Maximum number of unread items. With more items the reader fails with kind `exhausted`. */
  readonly limit: number;
  /** Ends the iteration when aborted; unread items are dropped. */
  readonly signal?: StopSignal;
  /**
   * Called once, when no more items will be read: after the end, after a failure, after an abort,
   * or when the reader leaves its loop.
   */
  readonly onClose?: () => void;
}

/** A pending call of `next`. */
interface PendingRead<Item> {
  readonly resolve: (result: IteratorResult<Item>) => void;
  readonly reject: (reason: unknown) => void;
}

/**
 * Bounded queue: one side pushes items, the other side reads them with one `for await` loop.
 *
 * @example
 * ```ts
 * const queue = new PushQueue<number>({ limit: 10 });
 * queue.push(1);
 * queue.end();
 * for await (const item of queue) console.log(item); // 1
 * ```
 */
export class PushQueue<Item> implements AsyncIterableIterator<Item> {
  private readonly items: Item[] = [];
  private readonly pendingReads: PendingRead<Item>[] = [];
  private failure: { readonly reason: unknown } | undefined;
  private ended = false;
  private closed = false;
  private readonly onAbort = (): void => this.drop();

  constructor(private readonly options: PushQueueOptions) {
    if (options.signal?.aborted === true) this.drop();
    else options.signal?.addEventListener('abort', this.onAbort, { once: true });
  }

  /** Number of items that wait for the reader. */
  get size(): number {
    return this.items.length;
  }

  /**
   * Adds an item; no effect after the end. When the limit is exceeded, the reader fails with kind
   * `exhausted`.
   */
  push(item: Item): void {
    if (this.ended) return;
    const pendingRead = this.pendingReads.shift();
    if (pendingRead !== undefined) pendingRead.resolve({ done: false, value: item });
    else if (this.items.length < this.options.limit) this.items.push(item);
    else {
      this.items.length = 0;
      this.fail(
        new CloudlessError(
          'SLOW_READER',
          `the reader fell more than ${this.options.limit} items behind`,
        ),
      );
    }
  }

  /** Ends the queue. Unread items are still delivered. */
  end(): void {
    this.ended = true;
    this.pendingReads.splice(0).forEach(({ resolve }) => resolve({ done: true, value: undefined }));
    if (this.items.length === 0) this.close();
  }

  /** Ends the queue. The iteration throws `reason` after the unread items. */
  fail(reason: unknown): void {
    if (this.ended) return;
    const pendingRead = this.pendingReads.shift();
    if (pendingRead === undefined) this.failure = { reason };
    else pendingRead.reject(reason);
    this.end();
  }

  next(): Promise<IteratorResult<Item>> {
    const item = this.items.shift();
    if (item !== undefined) return Promise.resolve({ done: false, value: item });
    if (!this.ended) {
      return new Promise((resolve, reject) => {
        this.pendingReads.push({ resolve, reject });
      });
    }
    this.close();
    const failure = this.failure;
    this.failure = undefined;
    return failure === undefined
      ? Promise.resolve({ done: true, value: undefined })
      : Promise.reject(failure.reason);
  }

  return(): Promise<IteratorResult<Item>> {
    this.drop();
    return Promise.resolve({ done: true, value: undefined });
  }

  [Symbol.asyncIterator](): AsyncIterableIterator<Item> {
    return this;
  }

  private drop(): void {
    this.items.length = 0;
    this.failure = undefined;
    this.end();
  }

  private close(): void {
    if (this.closed) return;
    this.closed = true;
    this.options.signal?.removeEventListener('abort', this.onAbort);
    this.options.onClose?.();
  }
}
