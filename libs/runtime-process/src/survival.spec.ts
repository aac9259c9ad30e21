import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { ContainerId } from '@cloudless/base';
import type { ContainerLease, ContainerStatus } from '@cloudless/runtime';
import {
  aScript,
  waitForExit,
  killSupervisor,
  closeAndKillSupervisor,
} from './testing/container-calls.js';
import {
  openRealMachine,
  SUPERVISOR_COMMAND,
  waitUntil,
  type RealMachine,
} from './testing/real-machine.js';
import { isAlive, readStartToken } from './system/process-identity.js';

let machine: RealMachine;
let scratch: string;
beforeEach(() => {
  scratch = mkdtempSync(path.join(tmpdir(), 'cloudless-survival-'));
});
afterEach(async () => {
  await machine.dispose();
  rmSync(scratch, { recursive: true, force: true });
});

const gate = (): string => path.join(scratch, 'gate');
const waitsAtGate = (): string => `until [ -e ${gate()} ]; do sleep 0.02; done`;
/** The process id that a script wrote to the file of this name. */
const waitForPid = async (name: string): Promise<number> => {
  const file = path.join(scratch, name);
  await waitUntil(() => existsSync(file) && readFileSync(file, 'utf8').endsWith('\n'));
  return Number(readFileSync(file, 'utf8'));
};
/**
 * A process that writes its id to a file and stays, in a session of its own, with an empty
 * environment.
 */
const anEscapee = (name: string): string =>
  `setsid env -i sh -c 'echo $$ > ${scratch}/${name}; exec sleep 3600'`;
/** Supervisor and guards of the machine, by their arguments. */
const findServants = (kind = ''): readonly number[] =>
  readdirSync('/proc').flatMap((entry) => {
    if (!/^\d+$/.test(entry)) return [];
    try {
      const words = readFileSync(`/proc/${entry}/cmdline`, 'utf8');
      return words.includes(machine.directory) && words.includes(kind) ? [Number(entry)] : [];
    } catch {
      return []; // ended meanwhile
    }
  });

describe('exit codes after the supervisor was killed', () => {
  beforeEach(async () => {
    machine = await openRealMachine();
  });

  it.each([
    { name: 'an exit code', ending: 'exit 3', exitCode: 3, reason: 'exit code 3' },
    { name: 'success', ending: 'exit 0', exitCode: 0, reason: 'completed' },
    { name: 'a signal', ending: 'kill -9 $$', exitCode: 137, reason: 'killed by SIGKILL' },
  ])(
    'reports $name of a process that the next supervisor adopted',
    async ({ ending, exitCode, reason }) => {
      const { containerId } = await machine.runtime.start(aScript(`${waitsAtGate()}; ${ending}`));
      await killSupervisor(machine);
      await machine.runtime.list();
      const end = waitForExit(machine.runtime, containerId);
      readyAt(gate());
      expect(await end).toMatchObject({ phase: 'exited', exitCode, reason });
    },
  );

  it('reports the exit code of a process that ended while no supervisor ran', async () => {
    const { containerId, pid = 0 } = await machine.runtime.start(
      aScript(`${waitsAtGate()}; exit 42`),
    );
    const token = readStartToken(pid) ?? '';
    await closeAndKillSupervisor(machine);
    readyAt(gate());
    await waitUntil(() => !isAlive(pid, token));
    expect(await waitForExit(await machine.reopen(), containerId)).toMatchObject({
      exitCode: 42,
      reason: 'exit code 42',
    });
  });

  it('reports a process whose guard was killed as running until it ends, then with an unknown exit code', async () => {
    const asked = aScript(`echo $$ > ${scratch}/main; ${waitsAtGate()}; exit 5`);
    const { containerId, pid = 0 } = await machine.runtime.start(asked);
    await waitForPid('main'); // until then the process still has the arguments of its guard
    const guards = findServants('cloudless-guard');
    expect(guards).toHaveLength(1);
    const end = waitForExit(machine.runtime, containerId);
    for (const guard of guards) process.kill(guard, 'SIGKILL');
    await waitUntil(() => guards.every((guard) => readStartToken(guard) === undefined));
    expect(await machine.runtime.list()).toMatchObject([{ phase: 'running', pid }]);
    readyAt(gate());
    expect(await end).toMatchObject({
      exitCode: -1,
      reason: 'ended while nobody could see its exit code',
    });
  });

  it('detects the end of a process whose guard is stopped by a signal, and can stop such a process', async () => {
    const asked = [aScript(waitsAtGate()), aScript('exec sleep 3600')];
    const [gone, stopped] = await Promise.all(
      asked.map((request) => machine.runtime.start(request)),
    );
    // Until a program begins its process still has the arguments of its guard.
    await waitUntil(() => findServants('cloudless-guard').length === 2);
    const guards = findServants('cloudless-guard');
    const end = waitForExit(machine.runtime, gone!.containerId);
    for (const guard of guards) process.kill(guard, 'SIGSTOP');
    readyAt(gate());
    expect(await end).toMatchObject({
      exitCode: -1,
      reason: 'ended while nobody could see its exit code',
    });
    expect(await machine.runtime.stop(stopped!.containerId, 0)).toMatchObject({
      phase: 'exited',
      exitCode: -1,
    });
    await waitUntil(() => guards.every((guard) => readStartToken(guard) === undefined));
  });

  it('gives a process exactly the requested environment, whatever names and values it has', async () => {
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
    const own = [...Object.keys(env), 'PATH', 'HOME', 'CLOUDLESS_CONTAINER_ID'].sort();
    expect(
      Object.keys(seen)
        .filter((name) => name !== '\n')
        .sort(),
    ).toEqual(own);
  });

  it('reports a process that ends at once as started, then as exited', async () => {
    const leave = new AbortController();
    const events = machine.runtime.events(leave.signal);
    const asked = Array.from({ length: 5 }, () => aScript('', { command: ['true'] }));
    await Promise.all(asked.map((request) => machine.runtime.start(request)));
    const kinds = new Map<string, string[]>(asked.map(({ containerId }) => [containerId, []]));
    for await (const { kind, status } of events) {
      kinds.get(status.containerId)?.push(`${kind} ${status.phase}`);
      if ([...kinds.values()].every((told) => told.some((each) => each.startsWith('exited'))))
        break;
    }
    leave.abort();
    for (const told of kinds.values()) expect(told).toEqual(['started running', 'exited exited']);
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

describe('an exclusive process whose supervisor and agent are dead', () => {
  /** Longer than any start takes; a test shortens the lease once everything is in place. */
  const LONG: ContainerLease = { leaseMs: 600_000, graceMs: 0 };
  const startExclusive = (script: string): Promise<ContainerStatus> =>
    machine.runtime.start(aScript(script, { lease: LONG }));
  const renew = (lease: ContainerLease, ...ids: readonly ContainerId[]): Promise<void> =>
    machine.runtime.renew(new Map(ids.map((id) => [id, lease])));
  /** Expires soon; SIGKILL never follows within a test. */
  const PATIENT: ContainerLease = { leaseMs: 1_000, graceMs: 600_000 };
  beforeEach(async () => {
    machine = await openRealMachine();
  });

  it('is killed with all its descendants when its lease expires, although it ignores SIGTERM', async () => {
    const script = `trap '' TERM; ${anEscapee('child')} & echo $$ > ${scratch}/main; wait; sleep 3600`;
    const { containerId } = await startExclusive(script);
    const ids = [await waitForPid('main'), await waitForPid('child')];
    await renew({ leaseMs: 1_000, graceMs: 500 }, containerId);
    await closeAndKillSupervisor(machine);
    await waitUntil(() => ids.every((pid) => readStartToken(pid) === undefined));
  });

  it('gets SIGTERM before SIGKILL when its lease expires', async () => {
    const { containerId } = await startExclusive(
      `trap 'echo 1 > ${scratch}/term; exit 0' TERM; echo $$ > ${scratch}/main; while :; do sleep 0.05; done`,
    );
    const main = await waitForPid('main');
    await renew(PATIENT, containerId);
    await closeAndKillSupervisor(machine);
    await waitUntil(() => readStartToken(main) === undefined);
    expect(await waitForPid('term')).toBe(1);
  });

  it('is reported as ended by its lease by the next supervisor, and the lease guard has ended', async () => {
    const { containerId, pid = 0 } = await startExclusive('exec sleep 3600');
    const token = readStartToken(pid) ?? '';
    await renew(PATIENT, containerId);
    await closeAndKillSupervisor(machine);
    await waitUntil(() => !isAlive(pid, token));
    await waitUntil(() => findServants().length === 0);
    const again = await machine.reopen();
    expect(await waitForExit(again, containerId)).toMatchObject({
      exitCode: 143,
      leaseEnded: true,
    });
  });

  it('ends when its lease expires while the supervisor is stopped by a signal', async () => {
    const { containerId, pid = 0 } = await startExclusive('exec sleep 3600');
    const token = readStartToken(pid) ?? '';
    const supervisor = await machine.runtime.supervisorPid();
    await renew(PATIENT, containerId);
    process.kill(supervisor, 'SIGSTOP');
    try {
      await waitUntil(() => !isAlive(pid, token));
    } finally {
      process.kill(supervisor, 'SIGCONT');
    }
  });

  it('outlives the expired lease of another container when its own lease was renewed', async () => {
    const { containerId, pid = 0 } = await startExclusive('exec sleep 3600');
    const other = await startExclusive('exec sleep 3600');
    await renew({ leaseMs: 1_000, graceMs: 0 }, other.containerId);
    await renew(LONG, containerId);
    await closeAndKillSupervisor(machine);
    await waitUntil(() => readStartToken(other.pid ?? 0) === undefined);
    expect(readStartToken(pid)).toBeDefined();
  });

  it('is adopted although its lease cannot be written, and ends when the lease expires', async () => {
    const request = aScript('exec sleep 3600', { lease: { leaseMs: 1_000, graceMs: 0 } });
    const { containerId, pid = 0 } = await machine.runtime.start(request);
    const end = waitForExit(machine.runtime, containerId);
    mkdirSync(path.join(machine.directory, 'leases.new')); // as on a full disk
    await killSupervisor(machine);
    expect(await end).toMatchObject({ leaseEnded: true });
    expect(readStartToken(pid)).toBeUndefined();
  });

  it('gets another lease guard when the guard is killed', async () => {
    const { containerId, pid = 0 } = await startExclusive('exec sleep 3600');
    const token = readStartToken(pid) ?? '';
    const leaseGuard = (): number | undefined => findServants('cloudless-lease-guard')[0];
    const first = leaseGuard() ?? 0;
    expect(first).toBeGreaterThan(0);
    process.kill(first, 'SIGKILL');
    await waitUntil(() => (leaseGuard() ?? first) !== first);
    await renew(PATIENT, containerId);
    await closeAndKillSupervisor(machine);
    await waitUntil(() => !isAlive(pid, token));
  });
});

describe.each([
  { name: 'with cgroups where the machine has them', flags: [] },
  { name: 'without cgroups', flags: ['--without-cgroups'] },
])('a process that left the session of its container, $name,', ({ flags }) => {
  beforeEach(async () => {
    machine = await openRealMachine({ supervisorCommand: [...SUPERVISOR_COMMAND, ...flags] });
  });

  it('does not outlive a stop', async () => {
    const { containerId } = await machine.runtime.start(aScript(`${anEscapee('child')} & wait`));
    const child = await waitForPid('child');
    await machine.runtime.stop(containerId, 60_000);
    await waitUntil(() => readStartToken(child) === undefined);
  });

  it('does not outlive a stop by another supervisor', async () => {
    const { containerId } = await machine.runtime.start(aScript(`${anEscapee('child')} & wait`));
    const child = await waitForPid('child');
    await killSupervisor(machine);
    await machine.runtime.stop(containerId, 0);
    await waitUntil(() => readStartToken(child) === undefined);
  });

  it('does not outlive the main process when it only cleared its environment', async () => {
    const { containerId } = await machine.runtime.start(
      aScript(
        `env -i sh -c 'echo $$ > ${scratch}/child; exec sleep 3600' & ${waitsAtGate()}; exit 1`,
      ),
    );
    const child = await waitForPid('child');
    readyAt(gate());
    await waitForExit(machine.runtime, containerId);
    await waitUntil(() => readStartToken(child) === undefined);
  });

  it('does not outlive its container when a command started it', async () => {
    const { runtime } = machine;
    const { containerId } = await runtime.start(aScript('exec sleep 3600'));
    const command = ['/bin/sh', '-c', `${anEscapee('child')} & wait`];
    const running = runtime
      .exec(containerId, { command }, new AbortController().signal)
      [Symbol.asyncIterator]();
    const first = running.next().catch(() => undefined);
    const child = await waitForPid('child');
    await runtime.stop(containerId, 0);
    await waitUntil(() => readStartToken(child) === undefined);
    await first;
  });

  it('does not outlive a shutdown', async () => {
    await machine.runtime.start(aScript(`${anEscapee('child')} & wait`));
    const child = await waitForPid('child');
    await machine.runtime.shutdown();
    await waitUntil(() => readStartToken(child) === undefined);
    await waitUntil(() => findServants().length === 0);
  });
});

describe('a daemon, whose parent has ended, in a session of its own with an empty environment', () => {
  /**
   * Only a cgroup identifies the container of such a process. Without cgroups the process is not
   * found, see docs/limits.md.
   */
  const hasCgroup = (pid: number): boolean =>
    readFileSync(`/proc/${pid}/cgroup`, 'utf8').includes('/cloudless-');
  const daemon = (): string => `( ${anEscapee('daemon')} & )`;
  beforeEach(async () => {
    machine = await openRealMachine();
  });

  it('does not outlive its container when the container ends by itself', async () => {
    const { containerId, pid = 0 } = await machine.runtime.start(
      aScript(`${daemon()}; ${waitsAtGate()}`),
    );
    const pidOfDaemon = await waitForPid('daemon');
    const isHeld = hasCgroup(pid);
    readyAt(gate());
    await waitForExit(machine.runtime, containerId);
    if (isHeld) await waitUntil(() => readStartToken(pidOfDaemon) === undefined);
    else process.kill(pidOfDaemon, 'SIGKILL');
  });

  it('does not outlive its container when a command started it', async () => {
    const { runtime } = machine;
    const { containerId, pid = 0 } = await runtime.start(aScript('exec sleep 3600'));
    const isHeld = hasCgroup(pid);
    // The end of a command kills its process group, which the daemon leaves only after its start.
    const command = [
      '/bin/sh',
      '-c',
      `${daemon()}; until [ -s ${scratch}/daemon ]; do sleep 0.01; done`,
    ];
    for await (const _ of runtime.exec(containerId, { command }, new AbortController().signal));
    const pidOfDaemon = await waitForPid('daemon');
    await runtime.stop(containerId, 0);
    if (isHeld) await waitUntil(() => readStartToken(pidOfDaemon) === undefined);
    else process.kill(pidOfDaemon, 'SIGKILL');
  });

  it('does not outlive its container when the container ended while no supervisor ran', async () => {
    const { pid = 0 } = await machine.runtime.start(aScript(`${daemon()}; ${waitsAtGate()}`));
    const token = readStartToken(pid) ?? '';
    const pidOfDaemon = await waitForPid('daemon');
    const isHeld = hasCgroup(pid);
    await closeAndKillSupervisor(machine);
    readyAt(gate());
    await waitUntil(() => !isAlive(pid, token));
    await machine.reopen();
    if (isHeld) await waitUntil(() => readStartToken(pidOfDaemon) === undefined);
    else process.kill(pidOfDaemon, 'SIGKILL');
  });
});

function readyAt(file: string): void {
  writeFileSync(file, '');
}
