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
  it('waits at most 50 ms after a session until a coordinator sets another spread', () => {
    const pause = new ReconnectBackoff(createSeededRandom(1));
    const pauses = Array.from({ length: 1_000 }, () => pause.delayAfterSession());
    expect(Math.min(...pauses)).toBeGreaterThan(0);
    expect(Math.max(...pauses)).toBeLessThanOrEqual(50);
  });

  it('spreads thousands of agents evenly over the requested time', () => {
    const tenths = new Array<number>(10).fill(0);
    for (let agent = 0; agent < 5_000; agent += 1) {
      const pause = new ReconnectBackoff(createSeededRandom(agent));
      pause.applyWelcome(welcome(1_000, 10_000));
      const tenth = Math.min(9, Math.floor(pause.delayAfterSession() / 100));
      tenths[tenth] = (tenths[tenth] ?? 0) + 1;
    }
    for (const count of tenths) expect(count).toBeGreaterThan(400);
  });

  it('grows after failures up to the requested maximum and resets after a session', () => {
    const pause = new ReconnectBackoff({ ...createSeededRandom(1), next: () => 0 });
    pause.applyWelcome(welcome(100, 500));
    expect(Array.from({ length: 6 }, () => pause.delayAfterFailure())).toEqual([
      50, 100, 200, 400, 500, 500,
    ]);
    pause.delayAfterSession();
    expect(pause.delayAfterFailure()).toBe(100);
  });

  it('makes half of each delay after a failure random', () => {
    const pause = new ReconnectBackoff({ ...createSeededRandom(1), next: () => 0.999 });
    for (let failure = 0; failure < 20; failure += 1) pause.delayAfterFailure();
    expect(pause.delayAfterFailure()).toBeCloseTo(500, -1);
  });
});
