import { settle } from '@cloudless/base/testing';
import { RequestQueue } from './request-queue.js';

async function readAll(queue: RequestQueue<number>): Promise<readonly number[]> {
  const items: number[] = [];
  for await (const item of queue.read()) items.push(item);
  return items;
}

describe('RequestQueue', () => {
  it('yields items in order, also items that are put while the reader waits', async () => {
    const queue = new RequestQueue<number>();
    void queue.put(1);
    const reading = readAll(queue);
    await settle();
    void queue.put(2);
    await settle();
    void queue.put(3);
    queue.end();
    expect(await reading).toEqual([1, 2, 3]);
  });

  it('resolves put only when the reader has read the item', async () => {
    const queue = new RequestQueue<number>();
    let isRead = false;
    void queue.put(1).then(() => (isRead = true));
    await settle();
    expect(isRead).toBe(false);
    await queue.read().next();
    await settle();
    expect(isRead).toBe(true);
  });

  it('resolves put without delivering the item when it is closed', async () => {
    const queue = new RequestQueue<number>();
    const put = queue.put(1);
    queue.close();
    await put;
    await queue.put(2);
    expect(await readAll(queue)).toEqual([]);
  });

  it('ends a waiting reader when it is closed', async () => {
    const queue = new RequestQueue<number>();
    const reading = readAll(queue);
    await settle();
    queue.close();
    expect(await reading).toEqual([]);
  });
});
