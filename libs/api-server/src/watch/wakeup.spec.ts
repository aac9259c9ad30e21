import { ManualClock } from '@cloudless/base/testing';
import { ChangedKeys, Wakeup } from './wakeup.js';

/** Every order of two calls of `notify` and one of `wait`. */
const callOrders = [
  ['notify', 'notify', 'wait'],
  ['notify', 'wait', 'notify'],
  ['wait', 'notify', 'notify'],
] as const;

describe('Wakeup', () => {
  it.each(callOrders)(
    'resolves the wait as woken when the calls are %s, %s, %s',
    async (...order) => {
      const clock = new ManualClock();
      const wakeup = new Wakeup();
      let result: string | undefined;
      for (const call of order) {
        if (call === 'notify') wakeup.notify();
        else
          void wakeup
            .wait(clock, 1_000, new AbortController().signal)
            .then((value) => (result = value));
      }
      await clock.advance(0);
      expect(result).toBe('woken');
      expect(clock.pendingTimers).toBe(0);
    },
  );

  it('resolves the wait after the timeout, and when the signal is aborted', async () => {
    const clock = new ManualClock();
    const stopping = new AbortController();
    const results: string[] = [];
    void new Wakeup()
      .wait(clock, 1_000, new AbortController().signal)
      .then((value) => results.push(value));
    void new Wakeup().wait(clock, 9_000, stopping.signal).then((value) => results.push(value));
    await clock.advance(1_000);
    stopping.abort();
    await clock.advance(0);
    expect(results).toEqual(['timeout', 'stopped']);
    expect(clock.pendingTimers).toBe(0);
  });
});

describe('ChangedKeys', () => {
  it('returns every marked key when keys are marked at any moment between the reads', async () => {
    for (let pauses = 0; pauses < 8; pauses += 1) {
      const clock = new ManualClock();
      const changedKeys = new ChangedKeys();
      const stopping = new AbortController();
      const seen = new Set<string>();
      const reader = (async () => {
        for (let keys = await changedKeys.next(clock, stopping.signal); keys !== undefined;) {
          for (const key of keys) seen.add(key);
          for (let turn = 0; turn < pauses; turn += 1) await Promise.resolve();
          keys = await changedKeys.next(clock, stopping.signal);
        }
      })();
      const marked = Array.from({ length: 20 }, (_, index) => `key-${index}`);
      for (const [index, key] of marked.entries()) {
        changedKeys.mark(key);
        for (let turn = 0; turn < index % 5; turn += 1) await Promise.resolve();
      }
      await clock.advance(0);
      expect([...seen]).toEqual(marked);
      stopping.abort();
      await reader;
    }
  });
});
