import type { Clock, Timer } from '@cloudless/base';
import { ArrivalQueue, readHead, returnAll, type Head } from './arrival-queue.js';

/** Inserts an item made by `filler` whenever the source has yielded nothing for `silenceMs`. */
export async function* withKeepAlive<Item>(
  source: AsyncIterable<Item>,
  silenceMs: number,
  clock: Clock,
  createItem: () => Item,
): AsyncGenerator<Item> {
  const iterators = [source[Symbol.asyncIterator]()];
  const inbox = new ArrivalQueue<Head<Item> | 'silent'>();
  let timer: Timer | undefined;
  let asked = false;
  try {
    for (;;) {
      if (!asked) inbox.addWhenSettled(readHead(iterators, 0));
      asked = true;
      timer = clock.setTimer(silenceMs, () => inbox.add('silent'));
      const head = await inbox.next();
      timer.cancel();
      if (head === 'silent') yield createItem();
      else if (head.result.done === true) return;
      else {
        asked = false;
        yield head.result.value;
      }
    }
  } finally {
    timer?.cancel();
    returnAll(iterators);
  }
}
