import type { Clock, Timer } from '@cloudless/base';

/**
 * Merges several sources in order of arrival. Buffers at most one item per source. Leaving the loop
 * ends all sources; the first failure ends all.
 */
export async function* mergeByArrival<Item>(
  sources: readonly AsyncIterable<Item>[],
): AsyncGenerator<Item> {
  const iterators = sources.map((source) => source[Symbol.asyncIterator]());
  const inbox = new ArrivalQueue<Head<Item>>();
  const requestNext = (index: number): void => inbox.addWhenSettled(readHead(iterators, index));
  let open = iterators.length;
  try {
    iterators.forEach((_iterator, index) => requestNext(index));
    while (open > 0) {
      const { index, result } = await inbox.next();
      if (result.done === true) {
        open -= 1;
        continue;
      }
      yield result.value;
      requestNext(index);
    }
  } finally {
    returnAll(iterators);
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
    const first = await Promise.all(
      iterators.map((_iterator, index) => readHead(iterators, index)),
    );
    const heads = first.filter(({ result }) => result.done !== true);
    while (heads.length > 0) {
      const smallest = heads.reduce((best, head) =>
        compare(head.result.value, best.result.value) < 0 ? head : best,
      );
      yield smallest.result.value;
      const next = await readHead(iterators, smallest.index);
      heads.splice(heads.indexOf(smallest), 1, ...(next.result.done === true ? [] : [next]));
    }
  } finally {
    returnAll(iterators);
  }
}

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

/** Flattens lists into single items. */
export async function* flattenLists<Item>(
  lists: AsyncIterable<readonly Item[]>,
): AsyncGenerator<Item> {
  for await (const list of lists) yield* list;
}

/** Wraps each item in a list. */
export async function* wrapEach<Item>(items: AsyncIterable<Item>): AsyncGenerator<readonly Item[]> {
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
class ArrivalQueue<Item> {
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

  /** @throws The rejection reason of a promise passed to `await`. */
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

async function readHead<Item>(
  iterators: readonly AsyncIterator<Item>[],
  index: number,
): Promise<Head<Item>> {
  const result = await iterators[index]?.next();
  return { index, result: result ?? { done: true, value: undefined } };
}

/**
 * Not awaited: a generator that waits for a silent source ends only when its own signal is aborted.
 */
function returnAll(iterators: readonly AsyncIterator<unknown>[]): void {
  for (const iterator of iterators) iterator.return?.().catch(() => undefined);
}
