import { existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
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
