import { ManualClock } from '@cloudless/base/testing';
import { HEALTHY, type RuntimeHealth } from '@cloudless/runtime';
import { watchStop } from './stop-watch.js';

describe('watchStop', () => {
  let clock: ManualClock;
  let health: RuntimeHealth;
  let lines: unknown[];
  beforeEach(() => {
    clock = new ManualClock();
    health = HEALTHY;
    lines = [];
  });
  const start = (stopWorkloads = false): (() => void) =>
    watchStop({
      runtime: { health: () => health },
      stopWorkloads,
      clock,
      log: { warn: (message, fields) => void lines.push({ message, ...fields }) },
    });
  const message = 'the stop waits for the supervisor of the processes, which does not answer';

  it('says once what the stop waits for, how long at most, and what helps', async () => {
    start();
    await clock.advance(3_000);
    expect(lines).toEqual([]);
    health = { ...HEALTHY, processesSilentMs: 1_000, supervisorPid: 17 };
    await clock.advance(10_000);
    expect(lines).toEqual([
      {
        ...{ message, supervisorPid: 17, atMost: '20 s' },
        remedy:
          'wait, or run kill -9 17 on the machine: another supervisor is started, which adopts the processes',
      },
    ]);
    expect(clock.pendingTimers).toBe(0);
  });

  it('names the grace period when workloads stop, and a file when the process is not known', () => {
    health = { ...HEALTHY, processesSilentMs: 1_000 };
    start(true);
    expect(lines).toEqual([
      expect.objectContaining({
        atMost: '20 s and the longest grace period',
        remedy: expect.stringContaining('read supervisor.log'),
      }),
    ]);
  });

  it('says nothing and leaves no timer when the stop begins 5 s after the last answer', async () => {
    health = { ...HEALTHY, processesSilentMs: 5_000, supervisorPid: 17 };
    start();
    await clock.advance(10_000);
    expect([lines, clock.pendingTimers]).toEqual([[], 0]);
  });

  it('says nothing and leaves no timer when the supervisor answers until the end', async () => {
    const end = start();
    await clock.advance(5_000);
    end();
    expect([lines, clock.pendingTimers]).toEqual([[], 0]);
  });
});
