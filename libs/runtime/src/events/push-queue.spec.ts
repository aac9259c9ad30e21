import { PushQueue } from '../index.js';

async function all<Item>(queue: AsyncIterable<Item>): Promise<readonly Item[]> {
  const items: Item[] = [];
  for await (const item of queue) items.push(item);
  return items;
}

describe('PushQueue', () => {
  it('yields items that were pushed before and during a read in order, then ends', async () => {
    let closeCount = 0;
    const queue = new PushQueue<number>({ limit: 10, onClose: () => (closeCount += 1) });
    queue.push(1);
    const reading = all(queue);
    queue.push(2);
    queue.end();
    queue.push(3);
    expect(await reading).toEqual([1, 2]);
    expect(closeCount).toBe(1);
  });

  it.each([{ before: true }, { before: false }])(
    'throws the failure after the items that were pushed before (failed before the read: $before)',
    async ({ before }) => {
      const queue = new PushQueue<number>({ limit: 10 });
      queue.push(1);
      if (before) queue.fail(new Error('gone'));
      expect(await queue.next()).toEqual({ done: false, value: 1 });
      const next = queue.next();
      queue.fail(new Error('gone'));
      await expect(next).rejects.toThrow('gone');
      expect(await queue.next()).toMatchObject({ done: true });
    },
  );

  it('fails with kind exhausted when more items than the limit are unread', async () => {
    const queue = new PushQueue<number>({ limit: 2 });
    for (let item = 0; item < 3; item += 1) queue.push(item);
    expect(queue.size).toBe(0);
    await expect(queue.next()).rejects.toMatchObject({ kind: 'exhausted' });
  });

  it('calls onClose once when its signal is aborted or its reader leaves the loop', async () => {
    const closings: string[] = [];
    const controller = new AbortController();
    const aborted = new PushQueue<number>({
      limit: 2,
      signal: controller.signal,
      onClose: () => closings.push('aborted'),
    });
    aborted.push(1);
    controller.abort();
    const abortedBefore = new PushQueue<number>({
      limit: 2,
      signal: controller.signal,
      onClose: () => closings.push('early'),
    });
    const left = new PushQueue<number>({ limit: 2, onClose: () => closings.push('left') });
    left.push(1);
    for await (const item of left) if (item === 1) break;
    expect([await all(aborted), await all(abortedBefore), await all(left)]).toEqual([[], [], []]);
    expect(closings).toEqual(['aborted', 'early', 'left']);
  });
});
