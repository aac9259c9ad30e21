import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { CloudlessError } from '@cloudless/base';
import { ManualClock, settle } from '@cloudless/base/testing';
import { SupervisorMonitor } from './supervisor-monitor.js';

describe('SupervisorMonitor', () => {
  let clock: ManualClock;
  let stop: AbortController;
  let pings: number;
  let ping: () => Promise<void>;
  let monitor: SupervisorMonitor;
  let running: Promise<void>;
  beforeEach(() => {
    clock = new ManualClock();
    stop = new AbortController();
    pings = 0;
    ping = async () => undefined;
    monitor = new SupervisorMonitor(clock, () => {
      pings += 1;
      return ping();
    });
    running = monitor.run(stop.signal);
  });
  afterEach(async () => {
    stop.abort();
    await running;
    expect(clock.pendingTimers).toBe(0);
  });

  it('reports 0 while the supervisor answers', async () => {
    await clock.advance(10_000);
    expect([monitor.silentMs, pings]).toEqual([0, 10]);
  });

  it('counts the time without an answer with one call, until the supervisor answers', async () => {
    let answer = (): void => undefined;
    ping = () => new Promise((resolve) => (answer = resolve));
    await clock.advance(7_000);
    expect([monitor.silentMs, pings]).toEqual([6_000, 1]);
    answer();
    await settle();
    expect(monitor.silentMs).toBe(0);
  });

  it('counts the time in which no supervisor can be reached, and calls again', async () => {
    ping = () => Promise.reject(new CloudlessError('unavailable', 'no connection'));
    await clock.advance(7_000);
    expect([monitor.silentMs, pings]).toEqual([6_000, 7]);
    ping = async () => undefined;
    await clock.advance(1_000);
    expect(monitor.silentMs).toBe(0);
  });

  it('counts from 0 once a new supervisor has answered, before the next turn', async () => {
    ping = () => Promise.reject(new CloudlessError('unavailable', 'no connection'));
    await clock.advance(7_000);
    monitor.noteAnswer();
    expect(monitor.silentMs).toBe(0);
    ping = async () => undefined;
    await clock.advance(1_000);
    expect(monitor.silentMs).toBe(0);
  });

  it('does not blame the supervisor for a pause of its own process', async () => {
    let answer = (): void => undefined;
    ping = () => new Promise((resolve) => (answer = resolve));
    await clock.advance(1_000);
    clock.suspend(60_000);
    await clock.advance(0);
    expect(monitor.silentMs).toBe(1_000);
    answer();
  });
});
