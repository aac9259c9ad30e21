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

class MappedItems<Item, Mapped> implements AsyncIterator<Mapped> {
  private items: AsyncIterator<Item> | undefined;
  private hasEnded = false;

  constructor(
    private readonly source: AsyncIterable<Item>,
    private readonly map: (item: Item) => Mapped,
    private readonly toError: (reason: unknown) => unknown,
  ) {}

  next(): Promise<IteratorResult<Mapped>> {
    if (this.hasEnded) return Promise.resolve(END);
    this.items ??= this.source[Symbol.asyncIterator]();
    return this.items.next().then(this.onItem, this.onFailure);
  }

  async return(): Promise<IteratorResult<Mapped>> {
    this.hasEnded = true;
    await this.items?.return?.();
    return END;
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
