import { ManualClock, settle } from '@cloudless/base/testing';
import { type CloudlessError } from '@cloudless/base';
import { PingMonitor } from './ping-monitor.js';

const TIMES = { pingIntervalMs: 900, leaseMs: 3_000 };

/** A connection whose pings are answered when a test says so. */
class SlowConnection {
  pings = 0;
  private answers: (() => void)[] = [];

  ping(): Promise<void> {
    this.pings += 1;
    return new Promise((resolve) => this.answers.push(resolve));
  }

  async answer(): Promise<void> {
    for (const resolve of this.answers.splice(0)) resolve();
    await settle();
  }
}

function startMonitor() {
  const clock = new ManualClock();
  const connection = new SlowConnection();
  const answeredAtMs: number[] = [];
  const losses: CloudlessError[] = [];
  const startMs = clock.now();
  const monitor = new PingMonitor(
    connection,
    clock,
    TIMES,
    (reason) => losses.push(reason),
    (sentAtMs) => answeredAtMs.push(sentAtMs - startMs),
  );
  return { clock, connection, monitor, answeredAtMs, losses };
}

describe('PingMonitor with a slow connection', () => {
  it('sends no ping while one is outstanding, and the due ping at the answer', async () => {
    const { clock, connection, monitor, answeredAtMs } = startMonitor();
    await clock.advance(2_000);
    expect(connection.pings).toBe(1);
    await connection.answer();
    expect(connection.pings).toBe(2);
    await connection.answer();
    expect(connection.pings).toBe(2);
    // The send times, which an answer proves the coordinator to have been reachable after.
    expect(answeredAtMs).toEqual([0, 2_000]);
    await clock.advance(900);
    expect(connection.pings).toBe(3);
    monitor.stop();
  });

  it('sends a ping that is requested while one is outstanding at the answer', async () => {
    const { clock, connection, monitor } = startMonitor();
    monitor.pingNow();
    expect(connection.pings).toBe(1);
    await connection.answer();
    expect(connection.pings).toBe(2);
    monitor.stop();
    await connection.answer();
    await clock.advance(5_000);
    expect(connection.pings).toBe(2);
  });

  it('reports the connection as lost once, when no ping is answered within the lease', async () => {
    const { clock, losses } = startMonitor();
    await clock.advance(2_999);
    expect(losses).toEqual([]);
    await clock.advance(5_000);
    expect(losses.map(({ kind }) => kind)).toEqual(['unavailable']);
  });
});
