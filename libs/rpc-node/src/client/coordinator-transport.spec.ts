import { EventEmitter } from 'node:events';
import type * as http2 from 'node:http2';
import { CoordinatorConnection } from './coordinator-transport.js';

/** An open session that answers no ping. */
class UnansweredSession extends EventEmitter {
  readonly destroyed = false;
  readonly closed = false;
  readonly callbacks: ((reason: Error | null) => void)[] = [];

  ping(callback: (reason: Error | null) => void): boolean {
    this.callbacks.push(callback);
    return true;
  }
}

describe('CoordinatorConnection.ping', () => {
  it('adds no listener to the session, and rejects at the end of the connection', async () => {
    const session = new UnansweredSession();
    const connection = new CoordinatorConnection(
      session as unknown as http2.ClientHttp2Session,
      'http://127.0.0.1:1',
    );
    const before = session.listenerCount('close');
    const answered = connection.ping();
    const pings = Array.from({ length: 20 }, () => connection.ping());
    expect(session.listenerCount('close')).toBe(before);
    session.callbacks[0]?.(null);
    await answered;
    session.emit('close');
    const results = await Promise.allSettled(pings);
    expect(results).toHaveLength(20);
    for (const result of results)
      expect(result).toMatchObject({ status: 'rejected', reason: { kind: 'unavailable' } });
  });
});
