import { LeaseRenewer, type RenewalConnection } from './lease-renewer.js';

const SESSION = {
  address: 'http://coordinator',
  nodeId: 'node-1',
  sessionId: 's1',
  pingIntervalMs: 900,
  leaseMs: 3_000,
};

/** A renewer with a scripted clock, main loop and coordinator. */
class Bed {
  nowMs = 0;
  /** Time at which the main loop last turned; undefined: it turns all the time. */
  blockedSinceMs: number | undefined;
  answer: () => Promise<'renewed' | 'refused'> = () => Promise.resolve('renewed');
  /** Sent renewals: time, session id and reported age. */
  readonly sent: (readonly [number, string, number])[] = [];
  dials = 0;
  closed = 0;
  readonly renewer = new LeaseRenewer({
    connect: (): RenewalConnection => {
      this.dials += 1;
      return {
        renew: ({ sessionId }, ageMs) => {
          this.sent.push([this.nowMs, sessionId, ageMs]);
          return this.answer();
        },
        close: () => (this.closed += 1),
      };
    },
    now: () => this.nowMs,
    loopAgeMs: () => (this.blockedSinceMs === undefined ? 50 : this.nowMs - this.blockedSinceMs),
  });

  async run(untilMs: number): Promise<void> {
    for (; this.nowMs < untilMs; this.nowMs += 100) {
      this.renewer.tick();
      await Promise.resolve();
      await Promise.resolve();
    }
  }
}

describe('LeaseRenewer', () => {
  it('opens no connection while the main loop turns', async () => {
    const bed = new Bed();
    bed.renewer.keep(SESSION);
    await bed.run(60_000);
    expect([bed.dials, bed.sent]).toEqual([0, []]);
  });

  it('renews from a third of the lease after the last turn on, at the ping interval, with the age', async () => {
    const bed = new Bed();
    bed.renewer.keep(SESSION);
    bed.blockedSinceMs = 0;
    await bed.run(4_000);
    expect(bed.sent).toEqual([
      [1_000, 's1', 1_000],
      [1_900, 's1', 1_900],
      [2_800, 's1', 2_800],
      [3_700, 's1', 3_700],
    ]);
    expect(bed.dials).toBe(1);
  });

  it('stops when the main loop turns again, and closes the connection after 10 s', async () => {
    const bed = new Bed();
    bed.renewer.keep(SESSION);
    bed.blockedSinceMs = 0;
    await bed.run(2_000);
    bed.blockedSinceMs = undefined;
    await bed.run(11_500);
    expect(bed.closed).toBe(0);
    await bed.run(12_500);
    expect([bed.sent.length, bed.closed]).toEqual([2, 1]);
  });

  it('never renews a session that was released, refused or replaced', async () => {
    const bed = new Bed();
    bed.blockedSinceMs = 0;
    bed.renewer.keep(SESSION);
    bed.renewer.release();
    await bed.run(5_000);
    expect(bed.sent).toEqual([]);
    bed.answer = () => Promise.resolve('refused');
    bed.renewer.keep(SESSION);
    await bed.run(10_000);
    expect(bed.sent).toHaveLength(1);
    bed.answer = () => Promise.resolve('renewed');
    bed.renewer.keep({ ...SESSION, sessionId: 's2' });
    await bed.run(12_000);
    expect(bed.sent.slice(1).map(([, id]) => id)).toEqual(['s2', 's2', 's2']);
  });

  it.each([
    { name: 'fails', answer: () => Promise.reject(new Error('reset')) },
    { name: 'is not answered', answer: () => new Promise<never>(() => undefined) },
  ])('dials again when a renewal $name', async ({ answer }) => {
    const bed = new Bed();
    bed.answer = answer;
    bed.blockedSinceMs = 0;
    bed.renewer.keep(SESSION);
    await bed.run(3_000);
    expect([bed.sent.length, bed.dials]).toEqual([3, 3]);
  });
});
