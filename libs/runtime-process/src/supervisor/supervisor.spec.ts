import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir, uptime } from 'node:os';
import path from 'node:path';
import { silentLog, type Clock } from '@cloudless/base';
import { systemClock, systemRandom } from '@cloudless/app-kit';
import { aScript } from '../testing/container-calls.js';
import { layout } from './container/container-paths.js';
import { findShellTools } from './process/shell-tools.js';
import { Supervisor } from './supervisor.js';

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(path.join(tmpdir(), 'cloudless-supervisor-'));
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

const SETTINGS = {
  ...{ portRange: { from: 18_000, to: 18_999 }, address: '127.0.0.1', path: '/usr/bin:/bin' },
  ...{ logFiles: 2, logFileBytes: 1024 },
};

describe('Supervisor, when leases cannot be written after the start of a process', () => {
  it('keeps the container under the lease that was written before the start, and fails its renewal', async () => {
    const tools = await findShellTools();
    if (tools === undefined) return;
    const leases = layout.leases(directory);
    const clock: Clock = {
      ...systemClock,
      wallTime: () => {
        // After the lease was written, the supervisor first reads the clock when the process runs.
        // From then on leases cannot be written, as on a full disk.
        if (existsSync(leases)) mkdirSync(`${leases}.new`, { recursive: true });
        return systemClock.wallTime();
      },
    };
    const supervisor = new Supervisor({
      directory,
      clock,
      random: systemRandom,
      log: silentLog,
      tools,
    });
    await supervisor.open();
    supervisor.configure(SETTINGS);
    const lease = { leaseMs: 600_000, graceMs: 0 };
    const request = aScript('exec sleep 3600', { lease });
    const { containerId } = request;
    try {
      expect(await supervisor.start(request)).toMatchObject({ containerId, phase: 'running' });
      expect(supervisor.list()).toMatchObject([{ containerId, phase: 'running' }]);
      expect(() => supervisor.renew([[containerId, lease]])).toThrow('EISDIR');
    } finally {
      await supervisor.stopAll(0);
      supervisor.close();
    }
  });
});

describe('Supervisor that stands still during the start of a process', () => {
  it('gives the process a lease that counts from the beginning of the start', async () => {
    const tools = await findShellTools();
    if (tools === undefined) return;
    const leases = layout.leases(directory);
    const remainingSeconds: number[] = [];
    const readRemaining = (): void => {
      const [, lease = ''] = readFileSync(leases, 'utf8').split('\n');
      remainingSeconds.push(Number(lease.split(' ')[0]) / 100 - uptime());
    };
    // The supervisor stands still for 100 s before it writes the lease for the lease guard, and
    // for 100 s after that, before the process runs.
    let readings: number | undefined;
    const clock: Clock = {
      ...systemClock,
      now: () => {
        if (readings === undefined) return systemClock.now();
        readings += 1;
        const standstills = existsSync(leases) ? 2 : Math.min(1, readings - 1);
        return systemClock.now() + standstills * 100_000;
      },
      wallTime: () => {
        if (remainingSeconds.length === 0 && existsSync(leases)) readRemaining();
        return systemClock.wallTime();
      },
    };
    const supervisor = new Supervisor({
      ...{ directory, clock, random: systemRandom, log: silentLog, tools },
    });
    await supervisor.open();
    supervisor.configure(SETTINGS);
    readings = 0;
    try {
      await supervisor.start(
        aScript('exec sleep 3600', { lease: { leaseMs: 600_000, graceMs: 0 } }),
      );
      readRemaining();
      expect(remainingSeconds.map((seconds) => Math.round(seconds / 50) * 50)).toEqual([500, 400]);
    } finally {
      await supervisor.stopAll(0);
      supervisor.close();
    }
  });
});
