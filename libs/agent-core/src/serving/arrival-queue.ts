/** Next result of one of several sources. */
export interface Head<Item> {
  /** Index of the source. */
  readonly index: number;
  readonly result: IteratorResult<Item>;
}

/**
 * Queue of items in the order in which their promises settle. `Promise.race` in a loop would
 * instead add a reaction to each pending promise at each wait, and keep the reactions until the
 * promise settles.
 */
export class ArrivalQueue<Item> {
  private readonly items: (() => Item)[] = [];
  private wake: (() => void) | undefined;

  add(item: Item): void {
    this.push(() => item);
  }

  /**
   * Adds the value of a promise when it resolves; when it rejects, {@link next} throws the reason.
   */
  addWhenSettled(item: Promise<Item>): void {
    item.then(
      (value) => this.push(() => value),
      (reason: unknown) =>
        this.push(() => {
          throw reason;
        }),
    );
  }

  /**
   * Removes and returns the oldest item; waits when the queue is empty. One caller at a time.
   * @throws The rejection reason of a promise passed to {@link addWhenSettled}.
   */
  async next(): Promise<Item> {
    for (;;) {
      const item = this.items.shift();
      if (item !== undefined) return item();
      await new Promise<void>((resolve) => (this.wake = resolve));
    }
  }

  private push(item: () => Item): void {
    this.items.push(item);
    this.wake?.();
  }
}

/** Requests the next item of the source at `index`. */
export async function readHead<Item>(
  iterators: readonly AsyncIterator<Item>[],
  index: number,
): Promise<Head<Item>> {
  const result = await iterators[index]?.next();
  return { index, result: result ?? { done: true, value: undefined } };
}

/**
 * Ends all iterators without waiting for them: a generator that waits for a silent source ends only
 * when its own signal is aborted.
 */
export function returnAll(iterators: readonly AsyncIterator<unknown>[]): void {
  for (const iterator of iterators) iterator.return?.().catch(() => undefined);
}
