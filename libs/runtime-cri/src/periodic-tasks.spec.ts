import { describe, expect, it } from '@jest/globals';
import { CloudlessError, silentLog, type Log } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { PeriodicTasks } from './periodic-tasks.js';

function setUp(): {
  readonly clock: ManualClock;
  readonly tasks: PeriodicTasks;
  readonly warnings: string[];
} {
  const clock = new ManualClock();
  const warnings: string[] = [];
  const log: Log = { ...silentLog, warn: (message) => void warnings.push(message) };
  return { clock, tasks: new PeriodicTasks(clock, log), warnings };
}

describe('PeriodicTasks', () => {
  it('begins each run the interval after the end of the previous run', async () => {
    const { clock, tasks } = setUp();
    const runs: number[] = [];
    tasks.repeat(100, async () => {
      runs.push(clock.now());
      await new Promise<void>((resolve) => clock.setTimer(30, resolve));
    });
    await clock.advance(400);
    expect(runs).toEqual([100, 230, 360]);
  });

  it('continues after a failed run, and logs the failure unless its kind is unavailable', async () => {
    const { clock, tasks, warnings } = setUp();
    const failures = [new Error('a bug'), new CloudlessError('unavailable', 'away')];
    let runs = 0;
    tasks.repeat(10, async () => {
      runs += 1;
      const failure = failures.shift();
      if (failure !== undefined) throw failure;
    });
    await clock.advance(35);
    expect([runs, warnings.length]).toEqual([3, 1]);
  });

  it('starts no run and leaves no timer after end', async () => {
    const { clock, tasks } = setUp();
    let runs = 0;
    tasks.repeat(10, async () => void (runs += 1));
    await clock.advance(15);
    tasks.end();
    expect(clock.pendingTimers).toBe(0);
    tasks.repeat(10, async () => void (runs += 1));
    await clock.advance(100);
    expect(runs).toBe(1);
  });
});
