import { silentLog, type Clock } from '@cloudless/base';
import { ManualClock, RecordingMeter } from '@cloudless/base/testing';
import { NodeDirectory } from './node-directory.js';

describe('cloudless_lease_sweep_lag_seconds', () => {
  it('shows the longest delay of a sweep since the last scrape', async () => {
    let now = 0;
    let fire: () => void = () => undefined;
    const clock: Clock = {
      now: () => now,
      wallTime: () => now,
      setTimer: (_delayMs, action) => {
        fire = action;
        return { cancel: () => undefined };
      },
    };
    const meter = new RecordingMeter();
    const directory = new NodeDirectory({ clock, log: silentLog, leaseMs: 3_000, meter });
    directory.start([]);
    const sweepAfter = (ms: number): void => {
      now += ms;
      fire();
    };
    sweepAfter(50);
    expect(await meter.read('cloudless_lease_sweep_lag_seconds')).toBe(0);
    sweepAfter(350);
    sweepAfter(50);
    expect(await meter.read('cloudless_lease_sweep_lag_seconds')).toBe(0.3);
    expect(await meter.read('cloudless_lease_sweep_lag_seconds')).toBe(0);
    directory.close();
  });
});

describe('cloudless_agents_slow', () => {
  it('counts the nodes whose agent renews its lease while its main loop stands still', async () => {
    const clock = new ManualClock();
    const meter = new RecordingMeter();
    const directory = new NodeDirectory({ clock, log: silentLog, leaseMs: 3_000, meter });
    directory.start([]);
    directory.startSession('node-1');
    expect(await meter.read('cloudless_agents_slow')).toBe(0);
    for (const loopAgeMs of [1_000, 2_000, 3_000, 4_000]) {
      await clock.advance(1_000);
      directory.renewLease('node-1', loopAgeMs);
    }
    expect(await meter.read('cloudless_agents_slow')).toBe(1);
    directory.renewLease('node-1');
    expect(await meter.read('cloudless_agents_slow')).toBe(0);
    directory.close();
  });
});
