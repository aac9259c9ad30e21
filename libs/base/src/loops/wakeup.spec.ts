import { settle } from '../testing/index.js';
import { Wakeup } from './wakeup.js';

/** Adds `name` to `ended` when a wait has ended. */
function record(ended: string[], name: string, wait: Promise<void>): void {
  void wait.then(() => ended.push(name));
}

describe('Wakeup', () => {
  it('resolves all pending waits when it is woken', async () => {
    const [wakeup, ended] = [new Wakeup(), [] as string[]];
    record(ended, 'first', wakeup.wait());
    record(ended, 'second', wakeup.wait());
    await settle();
    expect(ended).toEqual([]);
    wakeup.wake();
    await settle();
    expect(ended).toEqual(['first', 'second']);
  });

  it('does not resolve a wait that begins after the wake', async () => {
    const [wakeup, ended] = [new Wakeup(), [] as string[]];
    wakeup.wake();
    record(ended, 'before', wakeup.wait());
    wakeup.wake();
    record(ended, 'after', wakeup.wait());
    await settle();
    expect(ended).toEqual(['before']);
  });

  it('resolves a wait when its signal is aborted', async () => {
    const [wakeup, ended, stop] = [new Wakeup(), [] as string[], new AbortController()];
    record(ended, 'waiting', wakeup.wait(stop.signal));
    stop.abort();
    await settle();
    record(ended, 'aborted before', wakeup.wait(stop.signal));
    await settle();
    expect(ended).toEqual(['waiting', 'aborted before']);
  });

  it('leaves no listener on the signal after a wake', async () => {
    const [wakeup, stop] = [new Wakeup(), new AbortController()];
    let listeners = 0;
    const signal = {
      aborted: false,
      addEventListener: (...args: Parameters<AbortSignal['addEventListener']>) => {
        listeners += 1;
        stop.signal.addEventListener(...args);
      },
      removeEventListener: (...args: Parameters<AbortSignal['removeEventListener']>) => {
        listeners -= 1;
        stop.signal.removeEventListener(...args);
      },
    };
    const waiting = wakeup.wait(signal);
    expect(listeners).toBe(1);
    wakeup.wake();
    await waiting;
    expect(listeners).toBe(0);
  });

  it('wakes the reader of a queue for each item', async () => {
    const [wakeup, stop] = [new Wakeup(), new AbortController()];
    const [queue, read] = [[] as number[], [] as number[]];
    const reading = (async () => {
      while (!stop.signal.aborted) {
        const item = queue.shift();
        if (item === undefined) await wakeup.wait(stop.signal);
        else read.push(item);
      }
    })();
    for (const item of [1, 2, 3]) {
      queue.push(item);
      wakeup.wake();
      if (item === 2) await settle();
    }
    await settle();
    stop.abort();
    await reading;
    expect(read).toEqual([1, 2, 3]);
  });
});
