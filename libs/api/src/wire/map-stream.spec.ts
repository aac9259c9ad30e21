import { mapStream } from './map-stream.js';

/** Yields the numbers from 1, then fails if `end` is given. */
async function* numbers(count: number, end?: Error): AsyncGenerator<number> {
  for (let number = 1; number <= count; number += 1) yield number;
  if (end !== undefined) throw end;
}

async function read(items: AsyncIterable<unknown>, limit = Infinity) {
  const values: unknown[] = [];
  try {
    for await (const value of items) {
      values.push(value);
      if (values.length === limit) break;
    }
  } catch (reason) {
    return { values, reason };
  }
  return { values };
}

describe('mapStream', () => {
  it('converts every item and ends with its source', async () => {
    const items = numbers(3);
    const mapped = mapStream(items, (number) => `n${number}`)[Symbol.asyncIterator]();
    const results = [];
    for (let at = 0; at < 5; at += 1) results.push(await mapped.next());
    const end = { done: true, value: undefined };
    expect(results).toEqual([
      ...['n1', 'n2', 'n3'].map((value) => ({ done: false, value })),
      ...[end, end],
    ]);
  });

  it('leaves its source when an item cannot be converted, and yields nothing after that', async () => {
    const items = numbers(3);
    const mapped = mapStream(items, (number) => {
      if (number === 2) throw new RangeError('two');
      return number;
    })[Symbol.asyncIterator]();
    await mapped.next();
    await expect(mapped.next()).rejects.toThrow('two');
    expect(await mapped.next()).toEqual({ done: true, value: undefined });
    expect(await items.next()).toEqual({ done: true, value: undefined });
  });

  it('converts a failure of its source', async () => {
    const items = numbers(1, new Error('broken'));
    const result = await read(
      mapStream(
        items,
        (number) => number,
        (reason) => new TypeError((reason as Error).message),
      ),
    );
    expect(result).toEqual({ values: [1], reason: new TypeError('broken') });
  });

  it('leaves its source when its reader leaves', async () => {
    const items = numbers(3);
    expect(
      await read(
        mapStream(items, (number) => number),
        2,
      ),
    ).toEqual({ values: [1, 2] });
    expect(await items.next()).toEqual({ done: true, value: undefined });
  });
});
