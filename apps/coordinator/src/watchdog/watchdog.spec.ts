import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { createMemoryStateStore, type StateStore } from '@cloudless/state-store';
import { ManualClock } from '@cloudless/base/testing';
import { StallDetector } from './stall-detector.js';
import { describeStall } from './stall-texts.js';
import { StoreCallMarks } from './store-call-marks.js';
import { watchStoreCalls } from './watch-store-calls.js';

describe('StallDetector', () => {
  const looks = (...readings: readonly (readonly [pending: number, progress: number])[]) => {
    const detector = new StallDetector();
    return readings.map(([pending, progress]) => detector.observe({ pending, progress }, 500));
  };

  it('measures the time since the last call has returned', () => {
    expect(looks([1, 1], [1, 1], [2, 1], [1, 2], [1, 2])).toEqual([0, 500, 1_000, 0, 500]);
  });

  it('measures nothing while no call is pending', () => {
    expect(looks([0, 1], [0, 1], [0, 1])).toEqual([0, 0, 0]);
  });

  it('measures nothing while a long queue of calls is served', () => {
    expect(looks([5_000, 1], [5_000, 2], [5_000, 3], [5_000, 4])).toEqual([0, 0, 0, 0]);
  });

  it('leaves out the time for which the main thread computed', () => {
    const detector = new StallDetector();
    const reading = { pending: 1, progress: 1 };
    const measured = [false, false, true, false].map((isBusy) =>
      detector.observe(reading, 500, isBusy),
    );
    expect(measured).toEqual([0, 500, 500, 1_000]);
  });

  it('leaves out the time for which the whole process stood still', () => {
    const detector = new StallDetector();
    detector.observe({ pending: 1, progress: 1 }, 500);
    expect(detector.observe({ pending: 1, progress: 1 }, 3_600_000)).toBe(1_000);
  });
});

describe('watchStoreCalls', () => {
  it('marks writes and leases until they return or fail', async () => {
    const marks = new StoreCallMarks();
    const other = new StoreCallMarks(marks.memory);
    let finish: () => void = () => undefined;
    const calls: Partial<StateStore> = {
      txn: () => new Promise((resolve) => (finish = () => resolve({ revision: 1n }))),
      keepAlive: () => Promise.reject(new Error('gone')),
    };
    const slow = Object.assign(createMemoryStateStore({ clock: new ManualClock() }), calls);
    const store = watchStoreCalls(slow, marks);
    const writes = [store.txn([], []), store.txn([], [])];
    expect(other.read('write')).toEqual({ pending: 2, progress: 1 });
    finish();
    await writes[1];
    expect(other.read('write')).toEqual({ pending: 1, progress: 2 });
    await store.grantLease(1_000);
    await expect(store.keepAlive('1')).rejects.toThrow('gone');
    expect(other.read('lease')).toEqual({ pending: 0, progress: 4 });
  });
});

describe('startWatchdog', () => {
  const program = fileURLToPath(new URL('../testing/watchdog-child.ts', import.meta.url));
  const run = (task: string) =>
    new Promise<{ signal: unknown; stdout: string; stderr: string }>((resolve) => {
      const node = ['--conditions=@cloudless/source', '--import', 'tsx', program, task];
      execFile(process.execPath, node, (reason, stdout, stderr) =>
        resolve({ signal: reason?.signal, stdout, stderr }),
      );
    });
  const text = describeStall('write', 300);

  it('ends a process whose main thread hangs with the store', async () => {
    const { signal, stdout, stderr } = await run('loop-hangs');
    expect(signal).toBe('SIGKILL');
    expect(stdout).toBe('');
    expect(stderr).toContain(`cloudless-coordinator: ${text}; the process ends now\n`);
  });

  it('leaves a process whose main thread works to the end', async () => {
    expect(await run('loop-works')).toEqual({ signal: undefined, stdout: '', stderr: '' });
  });

  it('ends a process whose main loop never turns again', async () => {
    const { signal, stderr } = await run('loop-never-turns');
    expect({ signal, stderr }).toEqual({
      signal: 'SIGKILL',
      stderr: `cloudless-coordinator: ${describeStall('loop', 2_000)}; the process ends now\n`,
    });
  });

  it('reports the hang to a main thread that turns, before the process ends', async () => {
    const { signal, stdout } = await run('loop-turns');
    expect({ signal, stdout }).toEqual({
      signal: 'SIGKILL',
      stdout: `STORE_UNAVAILABLE: ${text}\n`,
    });
  });
});
