import { ArrivalQueue, readHead, returnAll, type Head } from './arrival-queue.js';

/**
 * Merges several sources in order of arrival. Buffers at most one item per source. The first
 * failure of a source, and the end of the reader's loop, end all sources.
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
