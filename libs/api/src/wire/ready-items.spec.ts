import fc from 'fast-check';
import { settle } from '@cloudless/base/testing';
import { mapStream } from './map-stream.js';
import {
  NOT_READY,
  STREAM_END,
  forEachItem,
  toIteratorResult,
  toReadyItems,
  type ReadyItems,
  type Taken,
} from './ready-items.js';

/** Numbers that a test adds one by one, until it ends or fails the stream. */
class TestItems implements ReadyItems<number>, AsyncIterable<number> {
  readonly canTake = true;
  isLeft = false;
  private readonly items: (number | typeof STREAM_END | Error)[] = [];
  private listener: (() => void) | undefined;

  [Symbol.asyncIterator](): this {
    return this;
  }

  add(item: number | 'end' | Error): void {
    this.items.push(item === 'end' ? STREAM_END : item);
    const { listener } = this;
    this.listener = undefined;
    listener?.();
  }

  take(): Taken<number> {
    const item = this.items.shift();
    if (item instanceof Error) throw item;
    return item ?? NOT_READY;
  }

  onReady(listener: () => void): void {
    this.listener = listener;
  }

  async next(): Promise<IteratorResult<number>> {
    for (;;) {
      const item = this.take();
      if (item !== NOT_READY) return toIteratorResult(item);
      await new Promise<void>((resolve) => this.onReady(resolve));
    }
  }

  async return(): Promise<IteratorResult<number>> {
    this.isLeft = true;
    return { done: true, value: undefined };
  }
}

/** Runs `forEachItem` over two conversions, of which the second fails for the number 13. */
function run(
  source: AsyncIterable<number>,
  handle: (text: string) => boolean | Promise<void> = () => true,
) {
  const seen: string[] = [];
  const numbers = mapStream(
    source,
    (number) => number + 1,
    (reason) => new TypeError((reason as Error).message),
  );
  const texts = mapStream(numbers, (number) => {
    if (number === 14) throw new RangeError('thirteen');
    return `n${number}`;
  });
  const state = { seen, outcome: 'open' };
  const items = texts[Symbol.asyncIterator]();
  forEachItem(items, (text) => {
    seen.push(text);
    return handle(text);
  }).then(
    () => (state.outcome = 'ended'),
    (reason: unknown) => (state.outcome = String(reason)),
  );
  return { state, items };
}

/** The same source without `take`. */
const onlyNext = (source: TestItems): AsyncIterable<number> => ({
  [Symbol.asyncIterator]: () => ({
    next: () => source.next(),
    return: () => source.return(),
  }),
});

const arbStep = fc.oneof(
  fc.record({ add: fc.integer({ min: 10, max: 15 }), settles: fc.boolean() }),
  fc.record({
    add: fc.constantFrom<'end' | Error>('end', new Error('broken')),
    settles: fc.boolean(),
  }),
);

describe('forEachItem', () => {
  it('passes the same items and failure on, whether they are taken or awaited', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(arbStep, { maxLength: 12 }), async (steps) => {
        const [first, second] = [new TestItems(), new TestItems()];
        const taken = run(first);
        const awaited = run(onlyNext(second));
        expect(toReadyItems(taken.items)).toBeDefined();
        expect(toReadyItems(awaited.items)).toBeUndefined();
        for (const { add, settles } of steps) {
          first.add(add);
          second.add(add);
          if (settles) await settle();
        }
        await settle();
        expect(taken.state).toEqual(awaited.state);
        expect(first.isLeft).toBe(second.isLeft);
      }),
    );
  });

  it('takes items at once when they arrive, all those that are there', async () => {
    const source = new TestItems();
    const { state } = run(source);
    source.add(1);
    source.add(2);
    expect(state.seen).toEqual(['n2', 'n3']);
  });

  it('continues with take after the first items were awaited', async () => {
    const source = new TestItems();
    const items = mapStream(source, (number) => number)[Symbol.asyncIterator]();
    source.add(1);
    expect(await items.next()).toEqual({ done: false, value: 1 });
    const seen: number[] = [];
    void forEachItem(items, (number) => seen.push(number) > 0);
    source.add(2);
    expect(seen).toEqual([2]);
  });

  it.each(['taken', 'awaited'])(
    'takes no further item until the promise of the handler has settled: %s',
    async (kind) => {
      const source = new TestItems();
      let goOn = (): void => undefined;
      const { state } = run(
        kind === 'taken' ? source : onlyNext(source),
        () => new Promise<void>((resolve) => (goOn = resolve)),
      );
      for (const item of [1, 2, 'end'] as const) source.add(item);
      await settle();
      expect(state).toEqual({ seen: ['n2'], outcome: 'open' });
      goOn();
      await settle();
      expect(state).toEqual({ seen: ['n2', 'n3'], outcome: 'open' });
      goOn();
      await settle();
      expect(state.outcome).toBe('ended');
    },
  );

  it.each([
    { name: 'returns false', handle: () => false, outcome: 'ended' },
    {
      name: 'throws',
      handle: () => {
        throw new Error('bad');
      },
      outcome: 'Error: bad',
    },
    {
      name: 'returns a promise that rejects',
      handle: () => Promise.reject(new Error('bad')),
      outcome: 'Error: bad',
    },
  ])('ends when the handler $name', async ({ handle, outcome }) => {
    const source = new TestItems();
    const { state } = run(source, handle);
    source.add(1);
    source.add(2);
    await settle();
    expect(state).toEqual({ seen: ['n2'], outcome });
  });
});
