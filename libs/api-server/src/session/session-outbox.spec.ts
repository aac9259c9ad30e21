import { ManualClock } from '@cloudless/base/testing';
import { ChangedKeys, Wakeup } from '../watch/wakeup.js';
import { SessionOutbox } from './session-outbox.js';

/** Every way in which two notifications and one wait can follow each other. */
const orders = [
  ['notify', 'notify', 'wait'],
  ['notify', 'wait', 'notify'],
  ['wait', 'notify', 'notify'],
] as const;

describe('Wakeup', () => {
  it.each(orders)('ends the wait at once after %s, %s, %s', async (...order) => {
    const clock = new ManualClock();
    const wakeup = new Wakeup();
    let result: string | undefined;
    for (const what of order) {
      if (what === 'notify') wakeup.notify();
      else
        void wakeup
          .wait(clock, 1_000, new AbortController().signal)
          .then((value) => (result = value));
    }
    await clock.advance(0);
    expect(result).toBe('woken');
    expect(clock.pendingTimers).toBe(0);
  });

  it('ends the wait after the timeout and when the signal is aborted', async () => {
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
  it('returns every marked key once, whenever it is marked', async () => {
    for (let pauses = 0; pauses < 8; pauses += 1) {
      const clock = new ManualClock();
      const dirty = new ChangedKeys();
      const stopping = new AbortController();
      const seen = new Set<string>();
      const reader = (async () => {
        for (let keys = await dirty.next(clock, stopping.signal); keys !== undefined;) {
          for (const key of keys) seen.add(key);
          for (let turn = 0; turn < pauses; turn += 1) await Promise.resolve();
          keys = await dirty.next(clock, stopping.signal);
        }
      })();
      const marked = Array.from({ length: 20 }, (_, index) => `key-${index}`);
      for (const [index, key] of marked.entries()) {
        dirty.mark(key);
        for (let turn = 0; turn < index % 5; turn += 1) await Promise.resolve();
      }
      await clock.advance(0);
      expect([...seen]).toEqual(marked);
      stopping.abort();
      await reader;
    }
  });
});

describe('SessionOutbox', () => {
  it('yields the newest message of each key in the order of the last push', async () => {
    const clock = new ManualClock();
    const outbox = new SessionOutbox<string>();
    for (const [key, message] of [
      ['a', 'a1'],
      ['b', 'b1'],
      ['a', 'a2'],
      ['c', 'c1'],
    ] as const)
      outbox.push(key, message);
    outbox.drop('c');
    expect(outbox.size).toBe(2);
    const read: string[] = [];
    const reading = (async () => {
      for await (const message of outbox.drain(clock, new AbortController().signal))
        read.push(message);
    })();
    await clock.advance(0);
    outbox.push('d', 'd1');
    await clock.advance(0);
    outbox.close();
    await reading;
    outbox.push('e', 'nobody reads this');
    expect({ read, size: outbox.size }).toEqual({ read: ['b1', 'a2', 'd1'], size: 0 });
  });
});
