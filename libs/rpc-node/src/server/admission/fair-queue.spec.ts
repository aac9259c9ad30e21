import { FairQueue } from './fair-queue.js';

const acceptAll = (): boolean => true;

function fillQueue(items: Readonly<Record<string, number>>): FairQueue<string> {
  const queue = new FairQueue<string>();
  for (const [key, count] of Object.entries(items))
    for (let i = 1; i <= count; i += 1) queue.push(key, `${key}${i}`);
  return queue;
}

function drainQueue(queue: FairQueue<string>, mayGo = acceptAll): readonly string[] {
  const order: string[] = [];
  for (let item = queue.shift(mayGo); item !== undefined; item = queue.shift(mayGo))
    order.push(item);
  return order;
}

describe('FairQueue', () => {
  it('serves keys round-robin, each key in its own order', () => {
    expect(drainQueue(fillQueue({ a: 4, b: 1, c: 2 }))).toEqual([
      'a1',
      'b1',
      'c1',
      'a2',
      'c2',
      'a3',
      'a4',
    ]);
  });

  it('delays a single item by one item of each other key, regardless of their number', () => {
    const queue = fillQueue({ flood: 1_000 });
    queue.push('single', 'mine');
    queue.shift(acceptAll);
    expect(queue.shift(acceptAll)).toBe('mine');
  });

  it('skips keys that are not eligible, which keep their place', () => {
    const queue = fillQueue({ a: 1, b: 1, c: 1 });
    expect(queue.shift((key) => key !== 'a')).toBe('b1');
    expect(drainQueue(queue)).toEqual(['a1', 'c1']);
  });

  it('counts items in total and by key, without removed items', () => {
    const queue = fillQueue({ a: 2, b: 1 });
    expect([queue.remove('a', 'a1'), queue.remove('a', 'a1'), queue.remove('z', 'z1')]).toEqual([
      true,
      false,
      false,
    ]);
    expect([queue.size, queue.countOf('a'), queue.countOf('b'), queue.countOf('z')]).toEqual([
      2, 1, 1, 0,
    ]);
    expect(drainQueue(queue)).toEqual(['a2', 'b1']);
    expect(queue.size).toBe(0);
  });

  it('removes a single item and keeps the items behind it', () => {
    const queue = fillQueue({ a: 3 });
    expect(queue.remove('a', 'a1')).toBe(true);
    expect([queue.size, queue.countOf('a'), drainQueue(queue)]).toEqual([2, 2, ['a2', 'a3']]);
  });

  it('returns the newest item of the longest key, unless the caller names that key', () => {
    const queue = fillQueue({ a: 3, b: 1 });
    expect(queue.findNewestOfLongest('b')).toBe('a3');
    expect(queue.findNewestOfLongest('a')).toBeUndefined();
  });
});
