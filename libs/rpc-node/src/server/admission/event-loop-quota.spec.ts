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
    /** The stream of each granted message, and the client of each action, in order. */
    granted,
    /** Runs one action of a client. Returns a function that withdraws the action. */
    run: (client: string): (() => void) => quota.run(client, () => granted.push(client)),
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

  it('runs actions at once up to the limit, and the others later, in turns of their clients', async () => {
    const loop = anEventLoop(2);
    for (const client of ['a', 'a', 'a', 'a', 'b']) loop.run(client);
    expect(loop.granted).toEqual(['a', 'a']);
    expect(await loop.runIteration()).toEqual(['a', 'b']);
    expect(await loop.runIteration()).toEqual(['a']);
  });

  it('counts waiting actions that ran in an iteration against new ones', async () => {
    const loop = anEventLoop(2);
    for (const client of ['a', 'b', 'c']) loop.run(client);
    await loop.runIteration();
    loop.run('d');
    loop.run('e');
    expect(loop.granted).toEqual(['a', 'b', 'c', 'd']);
    expect(await loop.runIteration()).toEqual(['e']);
  });

  it('never runs a withdrawn action', async () => {
    const loop = anEventLoop(1);
    loop.run('a');
    const withdraw = loop.run('b');
    loop.run('c');
    withdraw();
    expect(await loop.runIteration()).toEqual(['c']);
    expect(await loop.runIteration()).toEqual([]);
  });
});
