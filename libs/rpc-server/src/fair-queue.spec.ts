import { FairQueue } from './fair-queue.js';

const anybody = (): boolean => true;

function filled(items: Readonly<Record<string, number>>): FairQueue<string> {
  const queue = new FairQueue<string>();
  for (const [key, count] of Object.entries(items))
    for (let i = 1; i <= count; i += 1) queue.push(key, `${key}${i}`);
  return queue;
}

function drained(queue: FairQueue<string>, mayGo = anybody): readonly string[] {
  const order: string[] = [];
  for (let item = queue.take(mayGo); item !== undefined; item = queue.take(mayGo)) order.push(item);
  return order;
}

describe('FairQueue', () => {
  it('serves keys round-robin, each key in its own order', () => {
    expect(drained(filled({ a: 4, b: 1, c: 2 }))).toEqual([
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
    const queue = filled({ flood: 1_000 });
    queue.push('single', 'mine');
    queue.take(anybody);
    expect(queue.take(anybody)).toBe('mine');
  });

  it('skips keys that are not eligible, which keep their place', () => {
    const queue = filled({ a: 1, b: 1, c: 1 });
    expect(queue.take((key) => key !== 'a')).toBe('b1');
    expect(drained(queue)).toEqual(['a1', 'c1']);
  });

  it('counts items in total and by key, without removed items', () => {
    const queue = filled({ a: 2, b: 1 });
    expect([queue.remove('a', 'a1'), queue.remove('a', 'a1'), queue.remove('z', 'z1')]).toEqual([
      true,
      false,
      false,
    ]);
    expect([queue.size, queue.sizeOf('a'), queue.sizeOf('b'), queue.sizeOf('z')]).toEqual([
      2, 1, 1, 0,
    ]);
    expect(drained(queue)).toEqual(['a2', 'b1']);
    expect(queue.size).toBe(0);
  });

  it('returns the newest item of the longest key, unless the caller names that key', () => {
    const queue = filled({ a: 3, b: 1 });
    expect(queue.newestOfLongest('b')).toBe('a3');
    expect(queue.newestOfLongest('a')).toBeUndefined();
  });
});
