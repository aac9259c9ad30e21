import type { Clock } from '@cloudless/base';
import type { SimProcess } from './sim-process.js';

/**
 * Delays the items of a watch, so that the view of a process lags behind the store.
 * @param delayMs - Returns the delay of the next item, milliseconds; 0: none.
 */
export function delayItems<Item>(
  items: AsyncIterableIterator<Item>,
  {
    process,
    time,
    delayMs,
  }: {
    readonly process: SimProcess;
    readonly time: Clock;
    readonly delayMs: () => number;
  },
): AsyncIterableIterator<Item> {
  const iterator: AsyncIterableIterator<Item> = {
    next: async () => {
      const item = await items.next();
      const waitMs = delayMs();
      if (waitMs > 0)
        await new Promise<void>((resolve) => time.setTimer(waitMs, () => process.run(resolve)));
      return item;
    },
    return: () => items.return?.() ?? Promise.resolve({ done: true, value: undefined }),
    [Symbol.asyncIterator]: () => iterator,
  };
  return iterator;
}
