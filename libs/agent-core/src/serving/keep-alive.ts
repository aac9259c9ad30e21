import type { Clock, Timer } from '@cloudless/base';
import { ArrivalQueue, readHead, returnAll, type Head } from './arrival-queue.js';

/**
 * Yields the items of `source`, and an item made by `createItem` after each `silenceMs`
 * milliseconds without an item.
 */
export async function* withKeepAlive<Item>(
  source: AsyncIterable<Item>,
  silenceMs: number,
  clock: Clock,
  createItem: () => Item,
): AsyncGenerator<Item> {
  const iterators = [source[Symbol.asyncIterator]()];
  const inbox = new ArrivalQueue<Head<Item> | 'silent'>();
  let timer: Timer | undefined;
  let isRequested = false;
  try {
    for (;;) {
      if (!isRequested) inbox.addWhenSettled(readHead(iterators, 0));
      isRequested = true;
      timer = clock.setTimer(silenceMs, () => inbox.add('silent'));
      const head = await inbox.next();
      timer.cancel();
      if (head === 'silent') yield createItem();
      else if (head.result.done === true) return;
      else {
        isRequested = false;
        yield head.result.value;
      }
    }
  } finally {
    timer?.cancel();
    returnAll(iterators);
  }
}
