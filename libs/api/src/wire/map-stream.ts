import { NOT_READY, STREAM_END, toReadyItems, type ReadyItems, type Taken } from './ready-items.js';

/** Rest of a stream whose items have ended. */
const END: IteratorReturnResult<undefined> = { done: true, value: undefined };

/**
 * Returns the converted items of a stream, for one reader that awaits each item before the next. An
 * asynchronous generator would do the same, at the cost of several promises for each item.
 * @param map - When it throws, the source is left and the stream fails.
 * @param toError - Converts a failure of the source. Default: unchanged.
 */
export function mapStream<Item, Mapped>(
  source: AsyncIterable<Item>,
  map: (item: Item) => Mapped,
  toError: (reason: unknown) => unknown = (reason) => reason,
): AsyncIterable<Mapped> {
  return { [Symbol.asyncIterator]: () => new MappedItems(source, map, toError) };
}

class MappedItems<Item, Mapped> implements ReadyItems<Mapped> {
  private items: AsyncIterator<Item> | undefined;
  private readyItems: ReadyItems<Item> | undefined;
  private hasEnded = false;

  constructor(
    private readonly source: AsyncIterable<Item>,
    private readonly map: (item: Item) => Mapped,
    private readonly toError: (reason: unknown) => unknown,
  ) {}

  next(): Promise<IteratorResult<Mapped>> {
    if (this.hasEnded) return Promise.resolve(END);
    return this.open().next().then(this.onItem, this.onFailure);
  }

  get canTake(): boolean {
    this.open();
    return this.readyItems !== undefined;
  }

  take(): Taken<Mapped> {
    const { readyItems } = this;
    if (this.hasEnded || readyItems === undefined) return STREAM_END;
    let item: Taken<Item>;
    try {
      item = readyItems.take();
    } catch (reason) {
      return this.onFailure(reason);
    }
    if (item === NOT_READY) return NOT_READY;
    if (item === STREAM_END) {
      this.hasEnded = true;
      return STREAM_END;
    }
    try {
      return this.map(item);
    } catch (reason) {
      void this.leave(reason).catch(() => undefined);
      throw reason;
    }
  }

  onReady(listener: () => void): void {
    this.readyItems?.onReady(listener);
  }

  async return(): Promise<IteratorResult<Mapped>> {
    this.hasEnded = true;
    await this.items?.return?.();
    return END;
  }

  private open(): AsyncIterator<Item> {
    if (this.items === undefined) {
      this.items = this.source[Symbol.asyncIterator]();
      this.readyItems = toReadyItems(this.items);
    }
    return this.items;
  }

  private readonly onItem = (
    item: IteratorResult<Item>,
  ): IteratorResult<Mapped> | Promise<IteratorResult<Mapped>> => {
    if (item.done === true) {
      this.hasEnded = true;
      return END;
    }
    try {
      return { done: false, value: this.map(item.value) };
    } catch (reason) {
      return this.leave(reason);
    }
  };

  private readonly onFailure = (reason: unknown): never => {
    this.hasEnded = true;
    throw this.toError(reason);
  };

  private async leave(reason: unknown): Promise<never> {
    this.hasEnded = true;
    // The first error counts, as in a `for await` loop.
    await this.items?.return?.().catch(() => undefined);
    throw reason;
  }
}
