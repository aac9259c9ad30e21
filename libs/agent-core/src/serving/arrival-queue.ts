/** Next result of one of several sources. */
export interface Head<Item> {
  readonly index: number;
  readonly result: IteratorResult<Item>;
}

/**
 * Queue of settled promises. Unlike `Promise.race`, it adds no reaction to a promise that stays
 * pending for each wait.
 */
export class ArrivalQueue<Item> {
  private readonly items: (() => Item)[] = [];
  private wake: (() => void) | undefined;

  add(item: Item): void {
    this.push(() => item);
  }

  addWhenSettled(item: Promise<Item>): void {
    item.then(
      (value) => this.push(() => value),
      (reason: unknown) =>
        this.push(() => {
          throw reason;
        }),
    );
  }

  /** @throws The rejection reason of a promise passed to {@link addWhenSettled}. */
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

/** Requests the next item of a source. */
export async function readHead<Item>(
  iterators: readonly AsyncIterator<Item>[],
  index: number,
): Promise<Head<Item>> {
  const result = await iterators[index]?.next();
  return { index, result: result ?? { done: true, value: undefined } };
}

/**
 * Not awaited: a generator that waits for a silent source ends only when its own signal is aborted.
 */
export function returnAll(iterators: readonly AsyncIterator<unknown>[]): void {
  for (const iterator of iterators) iterator.return?.().catch(() => undefined);
}
