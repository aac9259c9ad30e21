import { ManualClock } from '@cloudless/base/testing';
import { SessionOutbox } from './session-outbox.js';

describe('SessionOutbox', () => {
  it('yields the newest message of each key in the order of the last push, and none after close', async () => {
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
      for await (const message of outbox.drain(new AbortController().signal)) read.push(message);
    })();
    await clock.advance(0);
    outbox.push('d', 'd1');
    await clock.advance(0);
    outbox.close();
    await reading;
    outbox.push('e', 'after close');
    expect({ read, size: outbox.size }).toEqual({ read: ['b1', 'a2', 'd1'], size: 0 });
  });

  it('allows a direct send only while the reader waits, so that no message overtakes another', async () => {
    const clock = new ManualClock();
    const outbox = new SessionOutbox<string>();
    const read: string[] = [];
    const trySend = (text: string): boolean => {
      if (outbox.canSendDirectly) read.push(text);
      return outbox.canSendDirectly;
    };
    const signal = new AbortController();
    const before = trySend('before the reader');
    const reading = (async () => {
      for await (const message of outbox.drain(signal.signal)) read.push(message);
    })();
    await clock.advance(0);
    const waiting = trySend('direct');
    outbox.push('a', 'pushed');
    const behindPushed = trySend('would overtake');
    await clock.advance(0);
    const again = trySend('direct again');
    signal.abort();
    const aborted = trySend('after the abort');
    await reading;
    expect({ before, waiting, behindPushed, again, aborted }).toEqual({
      ...{ before: false, waiting: true, behindPushed: false, again: true, aborted: false },
    });
    expect(read).toEqual(['direct', 'pushed', 'direct again']);
  });
});
