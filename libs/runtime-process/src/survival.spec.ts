import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir, uptime } from 'node:os';
import path from 'node:path';
import type { ContainerId } from '@cloudless/base';
import type { ContainerLease, ContainerStatus } from '@cloudless/runtime';
import { isAlive, readStartToken } from '@cloudless/app-kit/background';
import {
  aScript,
  waitForExit,
  killSupervisor,
  closeAndKillSupervisor,
} from './testing/container-calls.js';
import { openProcessRuntime, type ProcessRuntime } from './index.js';
import { layout } from './supervisor/container/container-paths.js';
import { readMachineUptimeMs } from './system/machine-uptime.js';
import {
  createRuntimeOptions,
  findProcesses,
  openRealMachine,
  SUPERVISOR_COMMAND,
  waitUntil,
  type RealMachine,
} from './testing/real-machine.js';

let machine: RealMachine;
let scratch: string;
beforeEach(() => {
  scratch = mkdtempSync(path.join(tmpdir(), 'cloudless-survival-'));
});
afterEach(async () => {
  await machine.dispose();
  rmSync(scratch, { recursive: true, force: true });
});

/** Path of the file at which scripts with {@link waitAtGate} wait. */
const gate = (): string => path.join(scratch, 'gate');
const waitAtGate = (): string => `until [ -e ${gate()} ]; do sleep 0.02; done`;
/** Waits until a script has written its process id to the file of this name, and returns the id. */
const waitForPid = async (name: string): Promise<number> => {
  const file = path.join(scratch, name);
  await waitUntil(() => existsSync(file) && readFileSync(file, 'utf8').endsWith('\n'));
  return Number(readFileSync(file, 'utf8'));
};
/**
 * A script that starts a process in a session of its own, with an empty environment. The process
 * writes its id to a file and sleeps.
 */
const aDetachedProcess = (name: string): string =>
  `setsid env -i sh -c 'echo $$ > ${scratch}/${name}; exec sleep 3600'`;
/** Finds the supervisor and the guards of the machine by a text in their arguments. */
const findHelpers = (kind = ''): readonly number[] =>
  readdirSync('/proc').flatMap((entry) => {
    if (!/^\d+$/.test(entry)) return [];
    try {
      const words = readFileSync(`/proc/${entry}/cmdline`, 'utf8');
      return words.includes(machine.directory) && words.includes(kind) ? [Number(entry)] : [];
    } catch {
      return []; // ended meanwhile
    }
  });

describe('the process runtime', () => {
  beforeEach(async () => {
    machine = await openRealMachine();
  });

  it.each([
    { name: 'exit code 3', ending: 'exit 3', exitCode: 3, reason: 'exit code 3' },
    { name: 'exit code 0', ending: 'exit 0', exitCode: 0, reason: 'completed' },
    {
      name: 'the end by SIGKILL',
      ending: 'kill -9 $$',
      exitCode: 137,
      reason: 'killed by SIGKILL',
    },
  ])(
    'reports $name of a process that the next supervisor adopted after the supervisor was killed',
    async ({ ending, exitCode, reason }) => {
      const { containerId } = await machine.runtime.start(aScript(`${waitAtGate()}; ${ending}`));
      await killSupervisor(machine);
      await machine.runtime.list();
      const end = waitForExit(machine.runtime, containerId);
      createFile(gate());
      expect(await end).toMatchObject({ phase: 'exited', exitCode, reason });
    },
  );

  it('keeps confidential variables for commands after the supervisor was killed, and writes them to no file', async () => {
    const PASSWORD = 'canary-9f2c';
    const request = aScript(`echo started > ${scratch}/started; ${waitAtGate()}`, {
      secretEnv: { PASSWORD },
    });
    const { containerId } = await machine.runtime.start(request);
    await waitUntil(() => existsSync(path.join(scratch, 'started')));
    const readPassword = async (): Promise<string> => {
      const command = ['/bin/sh', '-c', 'test "$PASSWORD" = canary-9f2c && echo same'];
      const events = machine.runtime.exec(containerId, { command }, new AbortController().signal);
      let text = '';
      for await (const event of events)
        if (event.kind === 'output') text += Buffer.from(event.data).toString();
      return text.trim();
    };
    const findLeaks = async (): Promise<readonly string[]> => {
      const supervisor = await machine.runtime.supervisorPid();
      const files = readdirSync(machine.directory, { recursive: true, withFileTypes: true })
        .filter((entry) => entry.isFile())
        .map((entry) => path.join(entry.parentPath, entry.name));
      const ofSupervisor = ['environ', 'cmdline'].map((name) => `/proc/${supervisor}/${name}`);
      return [...files, ...ofSupervisor].filter((file) => readFileSync(file).includes(PASSWORD));
    };
    expect(await readPassword()).toBe('same');
    expect(await findLeaks()).toEqual([]);
    await killSupervisor(machine);
    await machine.runtime.list();
    expect(await readPassword()).toBe('same');
    expect(await findLeaks()).toEqual([]);
    // The same check finds a planted value.
    writeFileSync(path.join(machine.directory, 'planted'), PASSWORD);
    expect(await findLeaks()).toHaveLength(1);
    rmSync(path.join(machine.directory, 'planted'));
    await machine.runtime.stop(containerId, 0);
    expect(await findLeaks()).toEqual([]);
  });

  it('reports the exit code of a process that ended while no supervisor ran', async () => {
    const { containerId, pid = 0 } = await machine.runtime.start(
      aScript(`${waitAtGate()}; exit 42`),
    );
    const token = readStartToken(pid) ?? '';
    await closeAndKillSupervisor(machine);
    createFile(gate());
    await waitUntil(() => !isAlive(pid, token));
    expect(await waitForExit(await machine.reopen(), containerId)).toMatchObject({
      exitCode: 42,
      reason: 'exit code 42',
    });
  });

  it('reports a process whose guard was killed as running, then as exited with an unknown code', async () => {
    const request = aScript(`echo $$ > ${scratch}/main; ${waitAtGate()}; exit 5`);
    const { containerId, pid = 0 } = await machine.runtime.start(request);
    await waitForPid('main'); // until then the process still has the arguments of its guard
    const guards = findHelpers('cloudless-guard');
    expect(guards).toHaveLength(1);
    const end = waitForExit(machine.runtime, containerId);
    for (const guard of guards) process.kill(guard, 'SIGKILL');
    await waitUntil(() => guards.every((guard) => readStartToken(guard) === undefined));
    expect(await machine.runtime.list()).toMatchObject([{ phase: 'running', pid }]);
    createFile(gate());
    expect(await end).toMatchObject({
      exitCode: -1,
      reason: 'ended with an unknown exit code',
    });
  });

  it('detects the end of a process whose guard is stopped by SIGSTOP, and can stop such a process', async () => {
    const requests = [aScript(waitAtGate()), aScript('exec sleep 3600')];
    const [waiting, sleeping] = await Promise.all(
      requests.map((request) => machine.runtime.start(request)),
    );
    // Until a program begins its process still has the arguments of its guard.
    await waitUntil(() => findHelpers('cloudless-guard').length === 2);
    const guards = findHelpers('cloudless-guard');
    const end = waitForExit(machine.runtime, waiting!.containerId);
    for (const guard of guards) process.kill(guard, 'SIGSTOP');
    createFile(gate());
    expect(await end).toMatchObject({
      exitCode: -1,
      reason: 'ended with an unknown exit code',
    });
    expect(await machine.runtime.stop(sleeping!.containerId, 0)).toMatchObject({
      phase: 'exited',
      exitCode: -1,
    });
    await waitUntil(() => guards.every((guard) => readStartToken(guard) === undefined));
  });

  it('starts a process with exactly the requested environment, also with special names and values', async () => {
    const env = {
      PWD: '/no/such/place',
      _: 'underscore',
      SHLVL: '77',
      IFS: ':',
      UID: '12',
      'with.dots': "it's",
      QUOTES: `"a" 'b' $HOME \`date\` \\ \n end`,
      UNICODE: 'Á È ü 日本 \u0081',
      EMPTY: '',
    };
    const { containerId } = await machine.runtime.start(
      aScript('', { command: ['env', '-0'], env }),
    );
    await waitForExit(machine.runtime, containerId);
    let text = '';
    for await (const line of machine.runtime.logs(
      containerId,
      { follow: true },
      new AbortController().signal,
    )) {
      text += `${Buffer.from(line.text).toString()}\n`;
    }
    const seen = Object.fromEntries(
      text.split('\0').map((entry) => entry.split(/=(.*)/s).slice(0, 2) as [string, string]),
    );
    expect(seen).toMatchObject(env);
    const expectedNames = [...Object.keys(env), 'PATH', 'HOME', 'CLOUDLESS_CONTAINER_ID'].sort();
    expect(
      Object.keys(seen)
        .filter((name) => name !== '\n')
        .sort(),
    ).toEqual(expectedNames);
  });

  it('reports a process that ends at once as started, then as exited', async () => {
    const controller = new AbortController();
    const events = machine.runtime.events(controller.signal);
    const requests = Array.from({ length: 5 }, () => aScript('', { command: ['true'] }));
    await Promise.all(requests.map((request) => machine.runtime.start(request)));
    const kinds = new Map<string, string[]>(requests.map(({ containerId }) => [containerId, []]));
    for await (const { kind, status } of events) {
      kinds.get(status.containerId)?.push(`${kind} ${status.phase}`);
      if ([...kinds.values()].every((reports) => reports.some((each) => each.startsWith('exited'))))
        break;
    }
    controller.abort();
    for (const reports of kinds.values())
      expect(reports).toEqual(['started running', 'exited exited']);
  });

  it('starts a process as leader of its own session, with the default action for SIGINT', async () => {
    const script = `echo $$ $(cut -d' ' -f6 /proc/$$/stat) > ${scratch}/ids.new; mv ${scratch}/ids.new ${scratch}/ids; kill -INT $$; exit 1`;
    const { containerId } = await machine.runtime.start(aScript(script));
    expect(await waitForExit(machine.runtime, containerId)).toMatchObject({
      exitCode: 130,
      reason: 'killed by SIGINT',
    });
    const [pid, session] = readFileSync(path.join(scratch, 'ids'), 'utf8').trim().split(' ');
    expect(session).toBe(pid);
  });
});

describe('an exclusive process', () => {
  /** Longer than any start takes; a test shortens the lease once everything is in place. */
  const LONG: ContainerLease = { leaseMs: 600_000, graceMs: 0 };
  const startExclusive = (script: string): Promise<ContainerStatus> =>
    machine.runtime.start(aScript(script, { lease: LONG }));
  const renew = (lease: ContainerLease, ...ids: readonly ContainerId[]): Promise<void> =>
    machine.runtime.renew(new Map(ids.map((id) => [id, lease])));
  /** Short enough to wait for, and longer than a renewal takes; a late renewal is refused. */
  const SHORT_MS = 2_000;
  /** Expires soon; SIGKILL does not follow within a test. */
  const WITH_LONG_GRACE: ContainerLease = { leaseMs: SHORT_MS, graceMs: 600_000 };
  beforeEach(async () => {
    machine = await openRealMachine();
  });

  it('is killed with all its descendants when its lease expires while no supervisor runs', async () => {
    const script = `trap '' TERM; ${aDetachedProcess('child')} & echo $$ > ${scratch}/main; wait; sleep 3600`;
    const { containerId } = await startExclusive(script);
    const ids = [await waitForPid('main'), await waitForPid('child')];
    await renew({ leaseMs: SHORT_MS, graceMs: 500 }, containerId);
    await closeAndKillSupervisor(machine);
    await waitUntil(() => ids.every((pid) => readStartToken(pid) === undefined));
  });

  it('gets SIGTERM before SIGKILL when its lease expires while no supervisor runs', async () => {
    const { containerId } = await startExclusive(
      `trap 'echo 1 > ${scratch}/term; exit 0' TERM; echo $$ > ${scratch}/main; while :; do sleep 0.05; done`,
    );
    const main = await waitForPid('main');
    await renew(WITH_LONG_GRACE, containerId);
    await closeAndKillSupervisor(machine);
    await waitUntil(() => readStartToken(main) === undefined);
    expect(await waitForPid('term')).toBe(1);
  });

  it('is reported as ended by its lease when the next supervisor starts', async () => {
    const { containerId, pid = 0 } = await startExclusive('exec sleep 3600');
    const token = readStartToken(pid) ?? '';
    await renew(WITH_LONG_GRACE, containerId);
    await closeAndKillSupervisor(machine);
    await waitUntil(() => !isAlive(pid, token));
    await waitUntil(() => findHelpers().length === 0); // the lease guard has ended
    const newRuntime = await machine.reopen();
    expect(await waitForExit(newRuntime, containerId)).toMatchObject({
      exitCode: 143,
      leaseEnded: true,
    });
  });

  it('ends when its lease expires while the supervisor is stopped by SIGSTOP', async () => {
    const { containerId, pid = 0 } = await startExclusive('exec sleep 3600');
    const token = readStartToken(pid) ?? '';
    const supervisor = await machine.runtime.supervisorPid();
    await renew(WITH_LONG_GRACE, containerId);
    process.kill(supervisor, 'SIGSTOP');
    try {
      await waitUntil(() => !isAlive(pid, token));
    } finally {
      process.kill(supervisor, 'SIGCONT');
    }
  });

  describe('whose request waits in the socket of its supervisor', () => {
    /**
     * Calls a client whose clock says that the request waits for `waitedMs` until the supervisor
     * reads the request.
     */
    async function callWithWait<Result>(
      waitedMs: number,
      call: (client: ProcessRuntime) => Promise<Result>,
    ): Promise<Result> {
      const client = await openProcessRuntime({
        ...createRuntimeOptions(machine.directory),
        machineUptimeMs: () => readMachineUptimeMs() - waitedMs,
      });
      try {
        return await call(client);
      } finally {
        await client.close();
      }
    }
    /** Returns the time until the end of the only lease, as the lease guard sees it. */
    function readRemainingSeconds(): number {
      const [, lease = ''] = readFileSync(layout.leases(machine.directory), 'utf8').split('\n');
      return Number(lease.split(' ')[0]) / 100 - uptime();
    }

    const expectAbout100Seconds = (): void => {
      expect(readRemainingSeconds()).toBeLessThan(101);
      expect(readRemainingSeconds()).toBeGreaterThan(50);
    };

    it('is not started when its lease ends before the supervisor reads the request', async () => {
      const request = aScript('exec sleep 3600', { lease: LONG });
      await expect(
        callWithWait(LONG.leaseMs, (client) => client.start(request)),
      ).rejects.toMatchObject({
        kind: 'unavailable',
        message: expect.stringContaining('no process was started'),
      });
      expect(await machine.runtime.list()).toEqual([]);
      expect(findProcesses(machine)).toEqual([]);
    });

    it('has a lease that counts from the time at which its start was sent', async () => {
      const request = aScript('exec sleep 3600', { lease: LONG });
      await callWithWait(LONG.leaseMs - 100_000, (client) => client.start(request));
      expectAbout100Seconds();
    });

    it('has a lease that counts from the time at which its renewal was sent', async () => {
      const { containerId } = await startExclusive('exec sleep 3600');
      expect(readRemainingSeconds()).toBeGreaterThan(101);
      await callWithWait(LONG.leaseMs - 100_000, (client) =>
        client.renew(new Map([[containerId, LONG]])),
      );
      expectAbout100Seconds();
    });
  });

  it('outlives the expired lease of another container when its own lease was renewed', async () => {
    const { containerId, pid = 0 } = await startExclusive('exec sleep 3600');
    const other = await startExclusive('exec sleep 3600');
    await renew({ leaseMs: SHORT_MS, graceMs: 0 }, other.containerId);
    await renew(LONG, containerId);
    await closeAndKillSupervisor(machine);
    await waitUntil(() => readStartToken(other.pid ?? 0) === undefined);
    expect(readStartToken(pid)).toBeDefined();
  });

  it('is adopted and ends with its lease when the next supervisor cannot write leases', async () => {
    const { containerId, pid = 0 } = await startExclusive('exec sleep 3600');
    const end = waitForExit(machine.runtime, containerId);
    await renew({ leaseMs: SHORT_MS, graceMs: 0 }, containerId);
    mkdirSync(path.join(machine.directory, 'leases.new')); // as on a full disk
    await killSupervisor(machine);
    expect(await end).toMatchObject({ leaseEnded: true });
    expect(readStartToken(pid)).toBeUndefined();
  });

  it('ends with its lease under another lease guard when the first lease guard was killed', async () => {
    const { containerId, pid = 0 } = await startExclusive('exec sleep 3600');
    const token = readStartToken(pid) ?? '';
    const leaseGuard = (): number | undefined => findHelpers('cloudless-lease-guard')[0];
    const firstGuard = leaseGuard() ?? 0;
    expect(firstGuard).toBeGreaterThan(0);
    process.kill(firstGuard, 'SIGKILL');
    await waitUntil(() => (leaseGuard() ?? firstGuard) !== firstGuard);
    await renew(WITH_LONG_GRACE, containerId);
    await closeAndKillSupervisor(machine);
    await waitUntil(() => !isAlive(pid, token));
  });
});

describe.each([
  { name: 'with cgroups where the machine has them', flags: [] },
  { name: 'without cgroups', flags: ['--without-cgroups'] },
])('a descendant with an empty environment, $name,', ({ flags }) => {
  beforeEach(async () => {
    machine = await openRealMachine({ supervisorCommand: [...SUPERVISOR_COMMAND, ...flags] });
  });

  it('is killed when its container is stopped, also in a session of its own', async () => {
    const { containerId } = await machine.runtime.start(
      aScript(`${aDetachedProcess('child')} & wait`),
    );
    const child = await waitForPid('child');
    await machine.runtime.stop(containerId, 60_000);
    await waitUntil(() => readStartToken(child) === undefined);
  });

  it('is killed when another supervisor stops its container', async () => {
    const { containerId } = await machine.runtime.start(
      aScript(`${aDetachedProcess('child')} & wait`),
    );
    const child = await waitForPid('child');
    await killSupervisor(machine);
    await machine.runtime.stop(containerId, 0);
    await waitUntil(() => readStartToken(child) === undefined);
  });

  it('is killed when the main process of its session ends', async () => {
    const { containerId } = await machine.runtime.start(
      aScript(
        `env -i sh -c 'echo $$ > ${scratch}/child; exec sleep 3600' & ${waitAtGate()}; exit 1`,
      ),
    );
    const child = await waitForPid('child');
    createFile(gate());
    await waitForExit(machine.runtime, containerId);
    await waitUntil(() => readStartToken(child) === undefined);
  });

  it('does not outlive its container when a command started it', async () => {
    const { runtime } = machine;
    const { containerId } = await runtime.start(aScript('exec sleep 3600'));
    const command = ['/bin/sh', '-c', `${aDetachedProcess('child')} & wait`];
    const running = runtime
      .exec(containerId, { command }, new AbortController().signal)
      [Symbol.asyncIterator]();
    const firstEvent = running.next().catch(() => undefined);
    const child = await waitForPid('child');
    await runtime.stop(containerId, 0);
    await waitUntil(() => readStartToken(child) === undefined);
    await firstEvent;
  });

  it('is killed by a shutdown of the runtime', async () => {
    await machine.runtime.start(aScript(`${aDetachedProcess('child')} & wait`));
    const child = await waitForPid('child');
    await machine.runtime.shutdown();
    await waitUntil(() => readStartToken(child) === undefined);
    await waitUntil(() => findHelpers().length === 0);
  });
});

describe('a daemon in a session of its own with an empty environment, where the user may create cgroups,', () => {
  /**
   * Only a cgroup identifies the container of such a process. Without cgroups the process is not
   * found, see docs/limits.md.
   */
  const hasCgroup = (pid: number): boolean =>
    readFileSync(`/proc/${pid}/cgroup`, 'utf8').includes('/cloudless-');
  const daemon = (): string => `( ${aDetachedProcess('daemon')} & )`;
  beforeEach(async () => {
    machine = await openRealMachine();
  });

  it('does not outlive its container when the container ends by itself', async () => {
    const { containerId, pid = 0 } = await machine.runtime.start(
      aScript(`${daemon()}; ${waitAtGate()}`),
    );
    const daemonPid = await waitForPid('daemon');
    const hasOwnCgroup = hasCgroup(pid);
    createFile(gate());
    await waitForExit(machine.runtime, containerId);
    if (hasOwnCgroup) await waitUntil(() => readStartToken(daemonPid) === undefined);
    else process.kill(daemonPid, 'SIGKILL');
  });

  it('does not outlive its container when a command started it', async () => {
    const { runtime } = machine;
    const { containerId, pid = 0 } = await runtime.start(aScript('exec sleep 3600'));
    const hasOwnCgroup = hasCgroup(pid);
    // The end of a command kills its process group, which the daemon leaves only after its start.
    const command = [
      '/bin/sh',
      '-c',
      `${daemon()}; until [ -s ${scratch}/daemon ]; do sleep 0.01; done`,
    ];
    for await (const _ of runtime.exec(containerId, { command }, new AbortController().signal));
    const daemonPid = await waitForPid('daemon');
    await runtime.stop(containerId, 0);
    if (hasOwnCgroup) await waitUntil(() => readStartToken(daemonPid) === undefined);
    else process.kill(daemonPid, 'SIGKILL');
  });

  it('does not outlive its container when the container ended while no supervisor ran', async () => {
    const { pid = 0 } = await machine.runtime.start(aScript(`${daemon()}; ${waitAtGate()}`));
    const token = readStartToken(pid) ?? '';
    const daemonPid = await waitForPid('daemon');
    const hasOwnCgroup = hasCgroup(pid);
    await closeAndKillSupervisor(machine);
    createFile(gate());
    await waitUntil(() => !isAlive(pid, token));
    await machine.reopen();
    if (hasOwnCgroup) await waitUntil(() => readStartToken(daemonPid) === undefined);
    else process.kill(daemonPid, 'SIGKILL');
  });
});

function createFile(file: string): void {
  writeFileSync(file, '');
}
