import { create } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { WelcomeSchema } from '@cloudless/api';
import { createSeededRandom } from '@cloudless/base';
import { ReconnectBackoff } from './reconnect-backoff.js';

const welcome = (spreadMs: number, maxMs: number) =>
  create(WelcomeSchema, {
    reconnectSpread: durationFromMs(spreadMs),
    reconnectPauseMax: durationFromMs(maxMs),
  });

describe('ReconnectBackoff', () => {
  it('delays at most 50 ms after a session until a Welcome sets another spread', () => {
    const backoff = new ReconnectBackoff(createSeededRandom(1));
    const delays = Array.from({ length: 1_000 }, () => backoff.delayAfterSession());
    expect(Math.min(...delays)).toBeGreaterThan(0);
    expect(Math.max(...delays)).toBeLessThanOrEqual(50);
  });

  it('spreads 5,000 agents evenly over the spread of the Welcome', () => {
    const tenths = new Array<number>(10).fill(0);
    for (let agent = 0; agent < 5_000; agent += 1) {
      const backoff = new ReconnectBackoff(createSeededRandom(agent));
      backoff.applyTimes(welcome(1_000, 10_000));
      const tenth = Math.min(9, Math.floor(backoff.delayAfterSession() / 100));
      tenths[tenth] = (tenths[tenth] ?? 0) + 1;
    }
    for (const count of tenths) expect(count).toBeGreaterThan(400);
  });

  it('doubles the delay after each failure up to the maximum of the Welcome, and resets after a session', () => {
    const backoff = new ReconnectBackoff({ ...createSeededRandom(1), next: () => 0 });
    backoff.applyTimes(welcome(100, 500));
    expect(Array.from({ length: 6 }, () => backoff.delayAfterFailure())).toEqual([
      50, 100, 200, 400, 500, 500,
    ]);
    backoff.delayAfterSession();
    expect(backoff.delayAfterFailure()).toBe(100);
  });

  it('spreads the dials after the loss of the leader over the time that the coordinator sets', () => {
    const backoff = new ReconnectBackoff({ ...createSeededRandom(1), next: () => 0.5 });
    expect(backoff.delayAfterLeaderLoss()).toBe(25);
    backoff.applyTimes({ ...welcome(100, 500), leaderLossSpread: durationFromMs(8_000) });
    expect(backoff.delayAfterLeaderLoss()).toBe(4_000);
    backoff.applyTimes(welcome(100, 500));
    expect(backoff.delayAfterLeaderLoss()).toBe(4_000);
  });

  it('makes half of each delay after a failure random', () => {
    const backoff = new ReconnectBackoff({ ...createSeededRandom(1), next: () => 0.999 });
    for (let failure = 0; failure < 20; failure += 1) backoff.delayAfterFailure();
    expect(backoff.delayAfterFailure()).toBeCloseTo(500, -1);
  });
});
