import { FairQueue } from './fair-queue.js';

const acceptAll = (): boolean => true;

/** Returns a queue with `items` numbered items of each key. */
function fillQueue(items: Readonly<Record<string, number>>): FairQueue<string> {
  const queue = new FairQueue<string>();
  for (const [key, count] of Object.entries(items))
    for (let i = 1; i <= count; i += 1) queue.push(key, `${key}${i}`);
  return queue;
}

function drainQueue(queue: FairQueue<string>, isEligible = acceptAll): readonly string[] {
  const order: string[] = [];
  for (let item = queue.shift(isEligible); item !== undefined; item = queue.shift(isEligible))
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

  it('delays the single item of a key by one item of another key that has 1 000 items', () => {
    const queue = fillQueue({ flood: 1_000 });
    queue.push('single', 'mine');
    queue.shift(acceptAll);
    expect(queue.shift(acceptAll)).toBe('mine');
  });

  it('skips a key that is not eligible, and serves it next once it is eligible', () => {
    const queue = fillQueue({ a: 1, b: 1, c: 1 });
    expect(queue.shift((key) => key !== 'a')).toBe('b1');
    expect(drainQueue(queue)).toEqual(['a1', 'c1']);
  });

  it('counts items in total and by key, and no longer counts removed items', () => {
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

  it('keeps the later items of a key when one item is removed', () => {
    const queue = fillQueue({ a: 3 });
    expect(queue.remove('a', 'a1')).toBe(true);
    expect([queue.size, queue.countOf('a'), drainQueue(queue)]).toEqual([2, 2, ['a2', 'a3']]);
  });

  it('finds the newest item of the key with the most items, unless the caller passes that key', () => {
    const queue = fillQueue({ a: 3, b: 1 });
    expect(queue.findNewestOfLongest('b')).toBe('a3');
    expect(queue.findNewestOfLongest('a')).toBeUndefined();
  });
});
