import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir, uptime } from 'node:os';
import path from 'node:path';
import { silentLog, type Clock, type ContainerId, type Random } from '@cloudless/base';
import type { ContainerLease, ContainerStatus } from '@cloudless/runtime';
import { systemClock, systemRandom } from '@cloudless/app-kit';
import { aScript } from '../testing/container-calls.js';
import { layout } from './container/container-paths.js';
import type { ShellTools } from './process/launch-script.js';
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
  const lease = { leaseMs: 600_000, graceMs: 1_000 };

  it('gives the process a lease that counts from the beginning of the start', async () => {
    const tools = await findShellTools();
    if (tools === undefined) return;
    const leases = layout.leases(directory);
    const remainingSeconds: number[] = [];
    const readRemaining = (): void => {
      const [, first = ''] = readFileSync(leases, 'utf8').split('\n');
      remainingSeconds.push(Number(first.split(' ')[0]) / 100 - uptime());
    };
    let standstillMs = 0;
    const { supervisor, start } = await openSlowSupervisor(tools, {
      now: () => systemClock.now() + standstillMs,
      onPortChoice: () => (standstillMs += 100_000),
      onProcessRuns: () => {
        readRemaining();
        standstillMs += 100_000;
      },
    });
    try {
      await start('exec sleep 3600', lease);
      readRemaining();
      expect(remainingSeconds.map((seconds) => Math.round(seconds / 50) * 50)).toEqual([500, 400]);
    } finally {
      await supervisor.stopAll(0);
      supervisor.close();
    }
  });

  it.each([
    { name: 'refuses a start', acceptedLease: lease, isStarted: false },
    // A client of an earlier version sends a lease that ended before its supervisor was reached.
    {
      name: 'starts the process of a client of an earlier version that sends a lease of 0',
      acceptedLease: { leaseMs: 0, graceMs: 0 },
      isStarted: true,
    },
  ])(
    '$name when the lease ends before the process is started',
    async ({ acceptedLease, isStarted }) => {
      const tools = await findShellTools();
      if (tools === undefined) return;
      let standstillMs = 0;
      let hasRun = false;
      const { supervisor, start } = await openSlowSupervisor(tools, {
        now: () => systemClock.now() + standstillMs,
        onPortChoice: () => (standstillMs += 900_000),
        onProcessRuns: () => (hasRun = true),
      });
      try {
        const result = await start('exec sleep 3600', acceptedLease).catch((reason) => reason);
        expect(result).toMatchObject(
          isStarted
            ? { phase: 'running' }
            : {
                kind: 'unavailable',
                message: 'lease: ended before the process could be started; no process was started',
              },
        );
        expect([hasRun, supervisor.list().length]).toEqual([isStarted, isStarted ? 1 : 0]);
      } finally {
        await supervisor.stopAll(0);
        supervisor.close();
      }
    },
  );

  /** Opens a supervisor that calls back during the start of its first process. */
  async function openSlowSupervisor(
    tools: ShellTools,
    {
      now,
      onPortChoice,
      onProcessRuns,
    }: {
      readonly now: () => number;
      /** Called after the start has begun, before its lease is written. */
      readonly onPortChoice: () => void;
      /** Called after the lease is written and the process runs. */
      readonly onProcessRuns: () => void;
    },
  ): Promise<{
    readonly supervisor: Supervisor;
    readonly start: (script: string, lease: ContainerLease) => Promise<ContainerStatus>;
  }> {
    let next: 'portChoice' | 'processRuns' | undefined;
    const random: Random = {
      ...systemRandom,
      next: () => {
        if (next === 'portChoice') {
          next = 'processRuns';
          onPortChoice();
        }
        return systemRandom.next();
      },
    };
    const wallTime = (): number => {
      if (next === 'processRuns') {
        next = undefined;
        onProcessRuns();
      }
      return systemClock.wallTime();
    };
    const clock: Clock = { ...systemClock, now, wallTime };
    const supervisor = new Supervisor({ directory, clock, random, log: silentLog, tools });
    await supervisor.open();
    supervisor.configure(SETTINGS);
    next = 'portChoice';
    const ports = [{ name: 'main', port: 80, protocol: 'tcp' }] as const;
    return {
      supervisor,
      start: (script, lease) => supervisor.start(aScript(script, { ports, lease })),
    };
  }
});

describe('Supervisor that reads a renewal after the lease of the renewal has ended', () => {
  it.each([
    { name: 'without a lease', lease: undefined },
    { name: 'with a longer lease', lease: { leaseMs: 600_000, graceMs: 0 } },
  ])('refuses the renewal, and leaves a container $name running', async ({ lease }) => {
    const tools = await findShellTools();
    if (tools === undefined) return;
    const supervisor = new Supervisor({
      ...{ directory, clock: systemClock, random: systemRandom, log: silentLog, tools },
    });
    await supervisor.open();
    supervisor.configure(SETTINGS);
    try {
      const requests = [0, 1].map(() =>
        aScript('exec sleep 3600', lease === undefined ? {} : { lease }),
      );
      for (const request of requests) await supervisor.start(request);
      const [late, other] = requests.map(({ containerId }) => containerId);
      if (late === undefined || other === undefined) throw new Error('two requests');
      const renewal = { leaseMs: 300_000, graceMs: 0 };
      const longRenewal = { leaseMs: 800_000, graceMs: 0 };
      expect(() =>
        supervisor.renew(
          [
            [late, renewal],
            [other, longRenewal],
          ],
          500_000,
        ),
      ).toThrow(
        expect.objectContaining({
          kind: 'unavailable',
          message: 'lease: ended before the supervisor read its renewal',
        }),
      );
      const findLease = (id: ContainerId): number | undefined =>
        supervisor.requireContainer(id).guardedLease?.endsAtUptimeSeconds;
      expect(findLease(other)).toBeCloseTo(uptime() + 300, -1);
      if (lease === undefined) expect(findLease(late)).toBeUndefined();
      else expect(findLease(late)).toBeGreaterThan(uptime() + 500);
      supervisor.renew([[late, renewal]], 100_000);
      expect(findLease(late)).toBeCloseTo(uptime() + 200, -1);
      expect(supervisor.list()).toMatchObject([{ phase: 'running' }, { phase: 'running' }]);
    } finally {
      await supervisor.stopAll(0);
      supervisor.close();
    }
  });
});
