/** No item is there yet: the reader of {@link ReadyItems} has to wait. */
export const NOT_READY = Symbol('not ready');
/** The stream of {@link ReadyItems} has ended. */
export const STREAM_END = Symbol('end of stream');
/**
 * An item, or why there is none. Not an `IteratorResult`, which would be an object for each item.
 */
export type Taken<Item> = Item | typeof NOT_READY | typeof STREAM_END;

/**
 * An asynchronous iterator whose items can also be taken without a promise for each of them: a
 * message of a stream passes several iterators, whose promises cost more than the message itself.
 * For one reader, which may use `next` and `take` in turn, but not `take` during a `next`.
 */
export interface ReadyItems<Item> extends AsyncIterator<Item> {
  /** False when the source of the items has no {@link take}: the reader must use `next`. */
  readonly canTake: boolean;
  /**
   * Takes the next item, or the end, if it is there. After {@link NOT_READY}, and before anything
   * else, the reader calls {@link onReady}.
   * @throws The failure of the stream, once. The stream has ended then.
   */
  take(): Taken<Item>;
  /** Runs `listener` once, never at once, when {@link take} may return something. */
  onReady(listener: () => void): void;
}

/** Returns the result of `next` for what {@link ReadyItems.take} has returned. */
export function toIteratorResult<Item>(
  taken: Exclude<Taken<Item>, typeof NOT_READY>,
): IteratorResult<Item> {
  return taken === STREAM_END
    ? { done: true, value: undefined }
    : { done: false, value: taken as Item };
}

/** Returns the iterator if its items can be taken. */
export function toReadyItems<Item>(items: AsyncIterator<Item>): ReadyItems<Item> | undefined {
  const ready = items as Partial<ReadyItems<Item>>;
  return ready.canTake === true ? (items as ReadyItems<Item>) : undefined;
}

/**
 * Passes the items of a stream to `handle`, one after the other. Unlike a `for await` loop, never
 * calls `return` of the iterator: the caller ends it.
 * @param handle - Returns true to go on, false to end, or a promise after which to go on.
 * @returns Resolves at the end of the stream, or after `handle` has returned false.
 * @throws The failure of the stream or of `handle`.
 */
export async function forEachItem<Item>(
  items: AsyncIterator<Item>,
  handle: (item: Item) => boolean | Promise<void>,
): Promise<void> {
  const ready = toReadyItems(items);
  if (ready !== undefined) return takeEach(ready, handle);
  for (let item = await items.next(); item.done !== true; item = await items.next()) {
    const handled = handle(item.value);
    if (handled === false) return;
    if (handled !== true) await handled;
  }
}

function takeEach<Item>(
  items: ReadyItems<Item>,
  handle: (item: Item) => boolean | Promise<void>,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const takeReady = (): void => {
      try {
        for (let item = items.take(); item !== NOT_READY; item = items.take()) {
          if (item === STREAM_END) return resolve();
          const handled = handle(item);
          if (handled === false) return resolve();
          if (handled !== true) return void handled.then(takeReady, reject);
        }
        items.onReady(takeReady);
      } catch (reason) {
        reject(reason instanceof Error ? reason : new Error(String(reason)));
      }
    };
    takeReady();
  });
}
