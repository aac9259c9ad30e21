import { createSeededRandom, WorkQueue, type WorkResult } from '../index.js';
import { ManualClock, RecordingMeter, settle } from '../testing/index.js';

function aQueue(handle: (key: string) => Promise<WorkResult>, clock = new ManualClock()) {
  const errors: unknown[] = [];
  const queue = new WorkQueue<string>({
    clock,
    random: createSeededRandom(1),
    handle,
    onError: (_key, reason) => errors.push(reason),
    backoff: { firstMs: 100, maxMs: 1_000 },
  });
  return { queue, clock, errors };
}

describe('WorkQueue', () => {
  it('runs a key once when it is woken several times before its pass', async () => {
    const seen: string[] = [];
    const { queue } = aQueue(async (key) => {
      seen.push(key);
      return { kind: 'done' };
    });
    queue.wake('a');
    queue.wake('b');
    queue.wake('b');
    await settle();
    expect(seen).toEqual(['a', 'b']);
    expect(queue.size).toBe(0);
  });

  it('runs a key again when it was woken while it ran, and never twice at the same time', async () => {
    const releases: (() => void)[] = [];
    let running = 0;
    let maxRunning = 0;
    const { queue } = aQueue(async () => {
      running += 1;
      maxRunning = Math.max(maxRunning, running);
      await new Promise<void>((resolve) => releases.push(resolve));
      running -= 1;
      return { kind: 'done' };
    });
    queue.wake('a');
    queue.wake('a');
    await settle();
    releases[0]?.();
    await settle();
    releases[1]?.();
    await settle();
    expect({ passes: releases.length, maxRunning }).toEqual({ passes: 2, maxRunning: 1 });
  });

  it('retries a failed key with growing, bounded delays, and resets the delay after a success', async () => {
    const passTimes: number[] = [];
    let failures = 5;
    const { queue, clock, errors } = aQueue(async () => {
      passTimes.push(clock.now());
      if (failures-- > 0) throw new Error('no');
      return { kind: 'done' };
    });
    queue.wake('a');
    await clock.advance(10_000);
    expect(passTimes).toEqual([0, 100, 300, 700, 1_500, 2_500]);
    expect(errors).toHaveLength(5);
    failures = 1;
    queue.wake('a');
    await clock.advance(100);
    expect(passTimes.slice(6)).toEqual([10_000, 10_100]);
  });

  it('lets other work run after 10 ms of passes, then goes on with the waiting keys', async () => {
    const seen: string[] = [];
    const { queue, clock } = aQueue(async (key) => {
      seen.push(key);
      clock.suspend(4);
      return { kind: 'done' };
    });
    for (let index = 0; index < 7; index += 1) queue.wake(`k${index}`);
    await settle();
    expect(seen).toEqual(['k0', 'k1', 'k2']);
    queue.wake('k7');
    expect(seen).toHaveLength(3);
    await clock.step(clock.now());
    expect(seen).toHaveLength(6);
    await clock.step(clock.now());
    expect(seen).toHaveLength(8);
    expect(queue.size).toBe(0);
  });

  it('counts only the part of a pass before its first await as work', async () => {
    const seen: string[] = [];
    const { queue, clock } = aQueue(async (key) => {
      seen.push(key);
      await Promise.resolve();
      clock.suspend(1_000);
      return { kind: 'done' };
    });
    for (const key of ['a', 'b', 'c']) queue.wake(key);
    await settle();
    expect(seen).toEqual(['a', 'b', 'c']);
  });

  it('starts no pass when the queue stops during a pause', async () => {
    let passes = 0;
    const { queue, clock } = aQueue(async () => {
      passes += 1;
      clock.suspend(10);
      return { kind: 'done' };
    });
    queue.wake('a');
    queue.wake('b');
    await settle();
    await queue.stop();
    await clock.advance(1_000);
    expect({ passes, timers: clock.pendingTimers }).toEqual({ passes: 1, timers: 0 });
  });

  it('runs a delayed key at once when it is woken', async () => {
    const passTimes: number[] = [];
    const { queue, clock } = aQueue(async () => {
      passTimes.push(clock.now());
      return passTimes.length === 1 ? { kind: 'after', delayMs: 1_000 } : { kind: 'done' };
    });
    queue.wake('a');
    await clock.advance(10);
    queue.wake('a');
    await clock.advance(5_000);
    expect(passTimes).toEqual([0, 10]);
  });

  it('runs a key within the time that it is asked for, and earlier only for an earlier request', async () => {
    const passTimes: number[] = [];
    const { queue, clock } = aQueue(async () => {
      passTimes.push(clock.now());
      return passTimes.length === 2 ? { kind: 'after', delayMs: 500 } : { kind: 'done' };
    });
    queue.wakeWithin('a', 100);
    queue.wakeWithin('a', 200);
    await clock.advance(50);
    queue.wakeWithin('a', 100);
    await clock.advance(150);
    expect(passTimes).toEqual([100]);
    queue.wakeWithin('a', 0);
    await clock.advance(100);
    expect(passTimes).toEqual([100, 200]);
    queue.wakeWithin('a', 300);
    queue.wakeWithin('a', 600);
    await clock.advance(1_000);
    expect(passTimes).toEqual([100, 200, 600]);
    expect(queue.size).toBe(0);
  });

  it('runs a key again that is asked for while it runs', async () => {
    const releases: (() => void)[] = [];
    const { queue, clock } = aQueue(async () => {
      await new Promise<void>((resolve) => releases.push(resolve));
      return { kind: 'done' };
    });
    queue.wake('a');
    queue.wakeWithin('a', 1_000);
    releases[0]?.();
    await settle();
    expect(releases).toHaveLength(2);
    releases[1]?.();
    await clock.advance(2_000);
    expect(releases).toHaveLength(2);
    const stopped = queue.stop();
    queue.wakeWithin('a', 10);
    await clock.advance(100);
    await stopped;
    expect({ passes: releases.length, size: queue.size }).toEqual({ passes: 2, size: 0 });
  });

  it('waits for running keys and starts no others when it is stopped', async () => {
    let release = (): void => undefined;
    let passes = 0;
    const { queue } = aQueue(async () => {
      passes += 1;
      await new Promise<void>((resolve) => (release = resolve));
      return { kind: 'again' };
    });
    queue.wake('a');
    await settle();
    const stopped = queue.stop();
    queue.wake('b');
    release();
    await stopped;
    expect(passes).toBe(1);
  });

  it('records passes, queue depth, longest wait and retrying keys as metrics', async () => {
    const clock = new ManualClock();
    const meter = new RecordingMeter();
    let open: () => void = () => undefined;
    const gate = new Promise<void>((resolve) => (open = resolve));
    const queue = new WorkQueue<string>({
      clock,
      random: createSeededRandom(1),
      metrics: { meter, loop: 'test' },
      handle: async (key) => {
        await gate;
        if (key === 'fails') throw new Error('no');
        return { kind: key === 'retries' ? 'retry' : 'done' };
      },
      onError: () => undefined,
      backoff: { firstMs: 100, maxMs: 1_000 },
    });
    for (const key of ['works', 'retries', 'fails']) queue.wake(key);
    await clock.advance(3_000);
    const labels = { loop: 'test' };
    // One of the three keys is running.
    expect(await meter.read('cloudless_loop_queue_depth', labels)).toBe(2);
    expect(await meter.read('cloudless_loop_oldest_wait_seconds', labels)).toBe(3);
    open();
    await clock.advance(10);
    expect(await meter.read('cloudless_loop_queue_depth', labels)).toBe(0);
    expect(await meter.read('cloudless_loop_oldest_wait_seconds', labels)).toBe(0);
    expect(await meter.read('cloudless_loop_retrying', labels)).toBe(2);
    for (const result of ['done', 'retry', 'failed']) {
      expect(await meter.read('cloudless_loop_passes_total', { loop: 'test', result })).toBe(1);
    }
    expect(await meter.read('cloudless_loop_pass_duration_seconds', labels)).toBe(3);
    await queue.stop();
  });
});
