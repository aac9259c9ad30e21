import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ManualClock } from '@cloudless/base/testing';
import {
  DRAIN_AT_SHUTDOWN_MS,
  endDrainingProxies,
  KILL_AFTER_MS,
  recordDraining,
  type ProcessAccess,
} from './draining-proxies.js';

describe('proxies that drain after an upgrade', () => {
  let directory: string;
  let clock: ManualClock;
  let signals: string[];
  /** Signal that ends the process; undefined: the process has ended. */
  let endsWith: 'SIGTERM' | 'SIGKILL' | undefined;
  const processes: ProcessAccess = {
    isAlive: () => endsWith !== undefined,
    signal: (pid, signal) => {
      signals.push(`${signal} ${pid === process.pid ? 'own pid' : pid}`);
      if (signal === endsWith) endsWith = undefined;
    },
  };
  const end = (): Promise<void> => endDrainingProxies(directory, clock, processes);

  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'cloudless-draining-'));
    clock = new ManualClock();
    signals = [];
    endsWith = 'SIGTERM';
  });
  afterEach(() => rmSync(directory, { recursive: true }));

  it('are found by their record and get SIGTERM', async () => {
    recordDraining(directory);
    await end();
    expect([signals, readdirSync(directory)]).toEqual([['SIGTERM own pid'], []]);
  });

  it('are killed when they have not ended 5 s after SIGTERM', async () => {
    endsWith = 'SIGKILL';
    recordDraining(directory);
    const ended = end();
    await clock.advance(DRAIN_AT_SHUTDOWN_MS);
    expect(signals).toEqual(['SIGTERM own pid']);
    await clock.advance(KILL_AFTER_MS - DRAIN_AT_SHUTDOWN_MS);
    await ended;
    expect(signals).toEqual(['SIGTERM own pid', 'SIGKILL own pid']);
  });

  it('are left alone when the process has ended and another has its id', async () => {
    endsWith = undefined;
    recordDraining(directory);
    await end();
    expect([signals, readdirSync(directory)]).toEqual([[], []]);
  });

  it('are not those of an earlier boot of the machine', async () => {
    const record = { pid: 1, startToken: 'a', bootId: 'earlier' };
    writeFileSync(join(directory, 'draining.1'), JSON.stringify(record));
    await end();
    expect(signals).toEqual([]);
  });

  it('have no record once they have ended, or continue to serve', () => {
    const remove = recordDraining(directory);
    expect(existsSync(join(directory, `draining.${process.pid}`))).toBe(true);
    remove();
    expect(readdirSync(directory)).toEqual([]);
  });

  it('are none in a directory that does not exist', async () => {
    await endDrainingProxies(join(directory, 'none'), clock, processes);
    expect(signals).toEqual([]);
  });
});
