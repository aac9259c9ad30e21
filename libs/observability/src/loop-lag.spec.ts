import type { Clock } from '@cloudless/base';
import { createMetrics, startLoopLagMeter } from './index.js';

/**
 * A clock with an event loop that the test controls: time passes, but timers fire only at `run`.
 */
function aControlledLoop() {
  let time = 0;
  let timers: { at: number; action: () => void }[] = [];
  const clock: Clock = {
    now: () => time,
    wallTime: () => time,
    setTimer: (delayMs, action) => {
      const timer = { at: time + delayMs, action };
      timers.push(timer);
      return { cancel: () => void (timers = timers.filter((each) => each !== timer)) };
    },
  };
  const run = (): void => {
    const due = timers.filter(({ at }) => at <= time);
    timers = timers.filter(({ at }) => at > time);
    for (const { action } of due) action();
  };
  return { clock, run, advance: (ms: number) => void (time += ms), timers: () => timers.length };
}

describe('startLoopLagMeter', () => {
  it('reports 0 while timers fire in time', () => {
    const { clock, run, advance } = aControlledLoop();
    const meter = startLoopLagMeter(clock);
    for (let turn = 0; turn < 100; turn += 1) {
      advance(20);
      run();
    }
    expect(meter.takeMaxMs()).toBe(0);
  });

  it('reports the longest delay, and 0 at the next call', () => {
    const { clock, run, advance } = aControlledLoop();
    const meter = startLoopLagMeter(clock);
    for (const ms of [320, 120, 20]) {
      advance(ms);
      run();
    }
    expect(meter.takeMaxMs()).toBe(300);
    expect(meter.takeMaxMs()).toBe(0);
  });

  it('reports a delay that has not ended, and later only the rest of this delay', () => {
    const { clock, run, advance } = aControlledLoop();
    const meter = startLoopLagMeter(clock);
    advance(220);
    expect(meter.takeMaxMs()).toBe(200);
    advance(50);
    run();
    expect(meter.takeMaxMs()).toBe(50);
  });

  it('exposes the longest delay since the last scrape, which does not reset takeMaxMs', async () => {
    const { clock, run, advance, timers } = aControlledLoop();
    const metrics = createMetrics();
    const meter = startLoopLagMeter(clock, metrics);
    advance(520);
    run();
    expect(await metrics.expose()).toContain('cloudless_event_loop_lag_seconds 0.5\n');
    expect(await metrics.expose()).toContain('cloudless_event_loop_lag_seconds 0\n');
    expect(meter.takeMaxMs()).toBe(500);
    meter.close();
    expect({ lag: meter.takeMaxMs(), timers: timers() }).toEqual({ lag: 0, timers: 0 });
  });
});
