import type { Clock, Timer } from '@cloudless/base';

/**
 * Merges several sources in order of arrival. Buffers at most one item per source. Leaving the loop
 * ends all sources; the first failure ends all.
 */
export async function* mergeByArrival<Item>(
  sources: readonly AsyncIterable<Item>[],
): AsyncGenerator<Item> {
  const iterators = sources.map((source) => source[Symbol.asyncIterator]());
  const inbox = new Inbox<Head<Item>>();
  const ask = (index: number): void => inbox.await(headOf(iterators, index));
  let open = iterators.length;
  try {
    iterators.forEach((_iterator, index) => ask(index));
    while (open > 0) {
      const { index, result } = await inbox.take();
      if (result.done === true) {
        open -= 1;
        continue;
      }
      yield result.value;
      ask(index);
    }
  } finally {
    leave(iterators);
  }
}

/**
 * Merges several sorted sources into one sorted source, smallest item first. Each item waits until
 * every source has an item or has ended.
 */
export async function* mergeSorted<Item>(
  sources: readonly AsyncIterable<Item>[],
  compare: (a: Item, b: Item) => number,
): AsyncGenerator<Item> {
  const iterators = sources.map((source) => source[Symbol.asyncIterator]());
  try {
    const first = await Promise.all(iterators.map((_iterator, index) => headOf(iterators, index)));
    const heads = first.filter(({ result }) => result.done !== true);
    while (heads.length > 0) {
      const smallest = heads.reduce((best, head) =>
        compare(head.result.value, best.result.value) < 0 ? head : best,
      );
      yield smallest.result.value;
      const next = await headOf(iterators, smallest.index);
      heads.splice(heads.indexOf(smallest), 1, ...(next.result.done === true ? [] : [next]));
    }
  } finally {
    leave(iterators);
  }
}

/** Inserts an item made by `filler` whenever the source has yielded nothing for `silenceMs`. */
export async function* fillSilence<Item>(
  source: AsyncIterable<Item>,
  silenceMs: number,
  clock: Clock,
  filler: () => Item,
): AsyncGenerator<Item> {
  const iterators = [source[Symbol.asyncIterator]()];
  const inbox = new Inbox<Head<Item> | 'silent'>();
  let timer: Timer | undefined;
  let asked = false;
  try {
    for (;;) {
      if (!asked) inbox.await(headOf(iterators, 0));
      asked = true;
      timer = clock.setTimer(silenceMs, () => inbox.put('silent'));
      const head = await inbox.take();
      timer.cancel();
      if (head === 'silent') yield filler();
      else if (head.result.done === true) return;
      else {
        asked = false;
        yield head.result.value;
      }
    }
  } finally {
    timer?.cancel();
    leave(iterators);
  }
}

/** Flattens lists into single items. */
export async function* oneByOne<Item>(lists: AsyncIterable<readonly Item[]>): AsyncGenerator<Item> {
  for await (const list of lists) yield* list;
}

/** Wraps each item in a list. */
export async function* eachAlone<Item>(
  items: AsyncIterable<Item>,
): AsyncGenerator<readonly Item[]> {
  for await (const item of items) yield [item];
}

interface Head<Item> {
  readonly index: number;
  readonly result: IteratorResult<Item>;
}

/**
 * Queue of settled promises. Unlike `Promise.race`, it adds no reaction to a promise that stays
 * pending for each wait.
 */
class Inbox<Item> {
  private readonly items: (() => Item)[] = [];
  private wake: (() => void) | undefined;

  put(item: Item): void {
    this.add(() => item);
  }

  await(item: Promise<Item>): void {
    item.then(
      (value) => this.add(() => value),
      (reason: unknown) =>
        this.add(() => {
          throw reason;
        }),
    );
  }

  /** @throws The rejection reason of a promise passed to `await`. */
  async take(): Promise<Item> {
    for (;;) {
      const item = this.items.shift();
      if (item !== undefined) return item();
      await new Promise<void>((resolve) => (this.wake = resolve));
    }
  }

  private add(item: () => Item): void {
    this.items.push(item);
    this.wake?.();
  }
}

async function headOf<Item>(
  iterators: readonly AsyncIterator<Item>[],
  index: number,
): Promise<Head<Item>> {
  const result = await iterators[index]?.next();
  return { index, result: result ?? { done: true, value: undefined } };
}

/**
 * Not awaited: a generator that waits for a silent source ends only when its own signal is aborted.
 */
function leave(iterators: readonly AsyncIterator<unknown>[]): void {
  for (const iterator of iterators) iterator.return?.().catch(() => undefined);
}
