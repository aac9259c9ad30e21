import { EventEmitter } from 'node:events';
import type { ClientHttp2Session } from 'node:http2';
import { ManualClock } from '@cloudless/base/testing';
import { PING_INTERVAL_MS, PING_TIMEOUT_MS, watchConnection } from './connection-watch.js';

type Answer = (reason: Error | null, durationMs: number, payload: Buffer) => void;

/** A session whose pings the test answers. */
class FakeSession extends EventEmitter {
  readonly pings: Answer[] = [];
  destroyed = false;
  endReason: unknown;

  readonly ping = (answer: unknown): boolean => {
    this.pings.push(answer as Answer);
    return !this.destroyed;
  };

  destroy(reason?: unknown): void {
    this.destroyed = true;
    this.endReason = reason;
    this.emit('close');
  }
}

function watchNew() {
  const clock = new ManualClock();
  const session = new FakeSession();
  watchConnection(session as unknown as ClientHttp2Session, clock);
  return { clock, session };
}

describe('watchConnection', () => {
  it('sends the next ping only after the answer to the one before', async () => {
    const { clock, session } = watchNew();
    await clock.advance(PING_INTERVAL_MS);
    await clock.advance(PING_TIMEOUT_MS - 1);
    expect(session.pings).toHaveLength(1);
    session.pings[0]?.(null, 0, Buffer.alloc(8));
    await clock.advance(PING_INTERVAL_MS);
    expect({ pings: session.pings.length, destroyed: session.destroyed }).toEqual({
      pings: 2,
      destroyed: false,
    });
  });

  it('destroys a session whose server does not answer, and says so to its calls', async () => {
    const { clock, session } = watchNew();
    await clock.advance(PING_INTERVAL_MS + PING_TIMEOUT_MS);
    expect(session.endReason).toMatchObject({
      kind: 'unavailable',
      message: 'no answer to a ping within 3000 ms',
    });
    expect(clock.pendingTimers).toBe(0);
  });

  it('ends with the session', async () => {
    const { clock, session } = watchNew();
    session.destroy();
    expect(clock.pendingTimers).toBe(0);
    await clock.advance(10 * PING_INTERVAL_MS);
    expect(session.pings).toEqual([]);
  });
});
