import { EventLoopQuota } from './event-loop-quota.js';

/** Turns of the event loop that a test moves. */
function anEventLoop(perTurn: number) {
  const waiting: (() => void)[] = [];
  const turns = new EventLoopQuota(perTurn, (action) => void waiting.push(action));
  const taken: string[] = [];
  const settle = async (): Promise<void> => {
    for (let count = 0; count < 20; count += 1) await Promise.resolve();
  };
  return {
    turns,
    taken,
    /** A stream that takes a turn again and again. */
    async stream(
      name: string,
      items: number,
      signal = new AbortController().signal,
    ): Promise<void> {
      for (let count = 0; count < items; count += 1) {
        await turns.acquire(name, signal);
        taken.push(name);
      }
    },
    /** @returns What was taken in this turn. */
    async next(): Promise<readonly string[]> {
      await settle();
      const from = taken.length;
      for (const action of waiting.splice(0)) action();
      await settle();
      return taken.slice(from);
    },
    settle,
    get isWaiting() {
      return waiting.length > 0;
    },
  };
}

describe('EventLoopQuota', () => {
  it('grants at once up to the limit of one event loop iteration', async () => {
    const loop = anEventLoop(3);
    void loop.stream('a', 5);
    await loop.settle();
    expect(loop.taken).toEqual(['a', 'a', 'a']);
    expect(await loop.next()).toEqual(['a', 'a']);
  });

  it('alternates between clients, regardless of their number of streams', async () => {
    const loop = anEventLoop(2);
    for (let count = 0; count < 3; count += 1) void loop.stream('greedy', 10);
    await loop.settle();
    void loop.stream('modest', 2);
    expect([await loop.next(), await loop.next()]).toEqual([
      ['greedy', 'modest'],
      ['greedy', 'modest'],
    ]);
  });

  it('stops the wait of a stream whose call has ended', async () => {
    const loop = anEventLoop(1);
    const ending = new AbortController();
    void loop.stream('a', 2, ending.signal);
    await loop.settle();
    void loop.stream('b', 1);
    expect(loop.taken).toEqual(['a']);
    ending.abort();
    await loop.settle();
    expect(loop.taken).toEqual(['a', 'a']);
    expect(await loop.next()).toEqual(['b']);
  });

  it('schedules no iteration when no stream waits', async () => {
    const loop = anEventLoop(2);
    void loop.stream('a', 2);
    await loop.next();
    await loop.next();
    expect(loop.isWaiting).toBe(false);
  });
});
