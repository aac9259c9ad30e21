import { spawn, type ChildProcess } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir, uptime } from 'node:os';
import path from 'node:path';
import { toContainerId } from '@cloudless/base';
import { readStartToken } from '@cloudless/app-kit/background';
import { waitUntil } from '../../testing/real-machine.js';
import { layout } from '../container/container-paths.js';
import type { ShellTools } from '../process/launch-script.js';
import { findShellTools } from '../process/shell-tools.js';
import { LeaseGuard, type GuardedLease } from './lease-guard.js';
import { LEASE_GUARD_SCRIPT } from './lease-guard-script.js';

let directory: string;
let tools: ShellTools | undefined;
const children: ChildProcess[] = [];
beforeAll(async () => {
  tools = await findShellTools();
});
beforeEach(() => {
  directory = mkdtempSync(path.join(tmpdir(), 'cloudless-guard-'));
});
afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
  rmSync(directory, { recursive: true, force: true });
});

const ID = toContainerId('ab'.repeat(32));
const startSleeper = (script = 'exec sleep 3600', env: NodeJS.ProcessEnv = {}): ChildProcess => {
  const child = spawn('/bin/sh', ['-c', script], { detached: true, stdio: 'ignore', env });
  children.push(child);
  return child;
};
const waitForExit = (child: ChildProcess): Promise<readonly unknown[]> =>
  new Promise((resolve) => child.once('exit', (...result) => resolve(result)));
/**
 * Replaces the file of leases in one step, as a supervisor does: a guard may read the file at any
 * moment.
 */
function writeLeases(header: string, leases: readonly (readonly unknown[])[]): string {
  const file = layout.leases(directory);
  writeFileSync(
    `${file}.new`,
    `${[header, ...leases.map((lease) => lease.join(' '))].join('\n')}\n`,
  );
  renameSync(`${file}.new`, file);
  return file;
}
/** Starts the script with a header whose supervisor is no running process. */
function startGuard(shell: string, leases: readonly (readonly unknown[])[]): ChildProcess {
  const file = writeLeases('1 1 dead - -', leases);
  const child = spawn(
    shell,
    ['-c', LEASE_GUARD_SCRIPT, 'guard', file, '1', tools?.sleep ?? '', tools?.grep ?? ''],
    { stdio: 'ignore' },
  );
  children.push(child);
  return child;
}
const isSleeping = ({ pid = 0 }: ChildProcess): boolean =>
  readFileSync(`/proc/${pid}/cmdline`, 'utf8').startsWith('sleep') &&
  readFileSync(`/proc/${pid}/environ`, 'utf8').includes(ID);
const readUptimeCentiseconds = (): number => Math.floor(uptime() * 100);

describe.each(['/bin/sh', '/bin/bash'])(
  'the lease guard script, run by %s, while the supervisor is dead,',
  (shell) => {
    const isMissing = (): boolean => tools === undefined || !existsSync(shell);

    it('sends SIGTERM when a lease has expired, and SIGKILL after the grace period', async () => {
      if (isMissing()) return;
      const gentle = startSleeper();
      const ready = path.join(directory, 'ready');
      const stubborn = startSleeper(`trap '' TERM; echo >${ready}; while :; do sleep 0.1; done`);
      await waitUntil(() => existsSync(ready));
      const ends = [waitForExit(gentle), waitForExit(stubborn)];
      const now = readUptimeCentiseconds();
      const line = ({ pid = 0 }: ChildProcess, killAt: number): readonly unknown[] => [
        now,
        killAt,
        ID,
        pid,
        readStartToken(pid),
        '-',
      ];
      const exited = waitForExit(
        startGuard(shell, [line(gentle, now + 6_000), line(stubborn, now + 60)]),
      );
      expect(await Promise.all(ends)).toEqual([
        [null, 'SIGTERM'],
        [null, 'SIGKILL'],
      ]);
      expect(existsSync(layout.leases(directory))).toBe(true);
      rmSync(layout.leases(directory)); // a guard exits when its file is missing
      await exited;
    });

    it('finds processes that left the session by their mark, kills them, and exits when none is left', async () => {
      if (isMissing()) return;
      const stray = startSleeper('exec sleep 3600', { CLOUDLESS_CONTAINER_ID: ID });
      const strayEnd = waitForExit(stray);
      // while a program begins, the kernel shows no environment
      await waitUntil(() => isSleeping(stray));
      const now = readUptimeCentiseconds();
      const exited = waitForExit(startGuard(shell, [[now, now, ID, '-', '-', '-']]));
      expect(await strayEnd).toEqual([null, 'SIGKILL']);
      expect(await exited).toEqual([0, null]);
    });

    it('does not kill a later process that has the process id of the lease', async () => {
      if (isMissing()) return;
      const later = startSleeper();
      const now = readUptimeCentiseconds();
      expect(await waitForExit(startGuard(shell, [[now, now, ID, later.pid, '1', '-']]))).toEqual([
        0,
        null,
      ]);
      expect(readStartToken(later.pid ?? 0)).toBeDefined();
    });

    it('exits when the leases file names a later guard', async () => {
      if (isMissing()) return;
      const inAnHour = readUptimeCentiseconds() + 360_000;
      const running = startGuard(shell, [[inAnHour, inAnHour, ID, '-', '-', '-']]);
      const exited = waitForExit(running);
      writeLeases('2 1 dead - -', []);
      expect(await exited).toEqual([0, null]);
    });
  },
);

describe('LeaseGuard', () => {
  const lease: GuardedLease = {
    containerId: ID,
    endsAtUptimeSeconds: uptime() + 3_600,
    graceMs: 10,
    main: undefined,
    cgroup: undefined,
  };
  const readGuardPid = (): number =>
    Number(readFileSync(layout.leases(directory), 'utf8').split(' ')[3]);

  it('starts a guard at the first lease, and kills the guard when no lease is left', async () => {
    if (tools === undefined) return;
    const leases = new LeaseGuard(directory, tools, () => undefined);
    leases.update([]);
    expect(existsSync(layout.leases(directory))).toBe(false);
    leases.update([lease]);
    const pid = readGuardPid();
    expect(readStartToken(pid)).toBeDefined();
    leases.update([]);
    await waitUntil(() => readStartToken(pid) === undefined);
    leases.close();
  });

  it('replaces the guard of an earlier supervisor', async () => {
    if (tools === undefined) return;
    const earlier = new LeaseGuard(directory, tools, () => undefined);
    earlier.update([lease]);
    const first = readGuardPid();
    const later = new LeaseGuard(directory, tools, () => undefined);
    later.update([lease]);
    const second = readGuardPid();
    expect(second).not.toBe(first);
    earlier.close();
    await waitUntil(() => readStartToken(first) === undefined);
    expect(readStartToken(second)).toBeDefined();
    later.close();
    await waitUntil(() => readStartToken(second) === undefined);
  });

  it.each([0.001, 0.25, 0.254_999, 0.999_999])(
    'writes a time of SIGTERM at or after the end of a lease that ends at a fraction of %s s',
    (fraction) => {
      if (tools === undefined) return;
      const endsAtUptimeSeconds = Math.floor(uptime()) + 3_600 + fraction;
      const leases = new LeaseGuard(directory, tools, () => undefined);
      leases.update([{ ...lease, endsAtUptimeSeconds, graceMs: 15 }]);
      const [, line = ''] = readFileSync(layout.leases(directory), 'utf8').split('\n');
      const [termAt = 0, killAt = 0] = line.split(' ').map(Number);
      expect(termAt / 100).toBeGreaterThanOrEqual(endsAtUptimeSeconds);
      expect(termAt / 100).toBeLessThan(endsAtUptimeSeconds + 0.02);
      expect((killAt - termAt) * 10).toBeGreaterThanOrEqual(15);
      leases.close();
    },
  );

  it('keeps the earlier leases in force when new leases cannot be written', () => {
    if (tools === undefined) return;
    const leases = new LeaseGuard(directory, tools, () => undefined);
    leases.update([lease]);
    const before = readFileSync(layout.leases(directory), 'utf8');
    mkdirSync(`${layout.leases(directory)}.new`); // as on a full disk
    expect(() => leases.update([lease, { ...lease, graceMs: 0 }])).toThrow('EISDIR');
    expect(readFileSync(layout.leases(directory), 'utf8')).toBe(before);
    leases.close();
  });
});
