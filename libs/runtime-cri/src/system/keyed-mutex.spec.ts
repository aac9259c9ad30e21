import { describe, expect, it } from '@jest/globals';
import { KeyedMutex } from './keyed-mutex.js';

describe('KeyedMutex', () => {
  it('admits one holder of a key at a time, in the order of the calls', async () => {
    const mutex = new KeyedMutex();
    const order: string[] = [];
    const work = async (name: string): Promise<void> => {
      const release = await mutex.lock('a');
      order.push(`${name} begins`);
      await new Promise<void>((resolve) => setImmediate(resolve));
      order.push(`${name} ends`);
      release();
    };
    await Promise.all(['one', 'two', 'three'].map(work));
    expect(order).toEqual(
      ['one', 'two', 'three'].flatMap((name) => [`${name} begins`, `${name} ends`]),
    );
  });

  it('grants one key while another key is held', async () => {
    const mutex = new KeyedMutex();
    await mutex.lock('a');
    const release = await mutex.lock('b');
    release();
  });

  it('grants a key again after its release', async () => {
    const mutex = new KeyedMutex();
    (await mutex.lock('a'))();
    (await mutex.lock('a'))();
  });
});
