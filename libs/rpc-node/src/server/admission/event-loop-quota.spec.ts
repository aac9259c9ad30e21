import { EventLoopQuota } from './event-loop-quota.js';

/** Returns a quota, streams that acquire from it, and an event loop that the test moves. */
function anEventLoop(perIteration: number) {
  const actions: (() => void)[] = [];
  const quota = new EventLoopQuota(perIteration, (action) => void actions.push(action));
  const granted: string[] = [];
  const settle = async (): Promise<void> => {
    for (let count = 0; count < 20; count += 1) await Promise.resolve();
  };
  return {
    /** The stream of each granted message, in order. */
    granted,
    /** Acquires the quota for `items` messages, one after the other. */
    async stream(
      name: string,
      items: number,
      signal = new AbortController().signal,
    ): Promise<void> {
      for (let count = 0; count < items; count += 1) {
        await quota.acquire(name, signal);
        granted.push(name);
      }
    },
    /** Runs the next iteration and returns the streams of the messages granted in it. */
    async runIteration(): Promise<readonly string[]> {
      await settle();
      const from = granted.length;
      for (const action of actions.splice(0)) action();
      await settle();
      return granted.slice(from);
    },
    settle,
    get isIterationScheduled() {
      return actions.length > 0;
    },
  };
}

describe('EventLoopQuota', () => {
  it('grants messages at once up to the limit of one iteration, and the rest in the next', async () => {
    const loop = anEventLoop(3);
    void loop.stream('a', 5);
    await loop.settle();
    expect(loop.granted).toEqual(['a', 'a', 'a']);
    expect(await loop.runIteration()).toEqual(['a', 'a']);
  });

  it('alternates between clients, regardless of their number of streams', async () => {
    const loop = anEventLoop(2);
    for (let count = 0; count < 3; count += 1) void loop.stream('greedy', 10);
    await loop.settle();
    void loop.stream('modest', 2);
    expect([await loop.runIteration(), await loop.runIteration()]).toEqual([
      ['greedy', 'modest'],
      ['greedy', 'modest'],
    ]);
  });

  it('stops the wait of a stream at once when its call ends', async () => {
    const loop = anEventLoop(1);
    const call = new AbortController();
    void loop.stream('a', 2, call.signal);
    await loop.settle();
    void loop.stream('b', 1);
    expect(loop.granted).toEqual(['a']);
    call.abort();
    await loop.settle();
    expect(loop.granted).toEqual(['a', 'a']);
    expect(await loop.runIteration()).toEqual(['b']);
  });

  it('schedules no further iteration when no stream waits', async () => {
    const loop = anEventLoop(2);
    void loop.stream('a', 2);
    await loop.runIteration();
    await loop.runIteration();
    expect(loop.isIterationScheduled).toBe(false);
  });
});
