import { spawn } from 'node:child_process';
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { createServer, type Server } from 'node:net';
import { tmpdir, uptime } from 'node:os';
import path from 'node:path';
import {
  createSeededRandom,
  randomHex,
  StoppedError,
  toContainerId,
  type Clock,
  type ContainerId,
} from '@cloudless/base';
import type {
  ContainerRequest,
  ContainerRuntime,
  ContainerStatus,
  LogLine,
  RuntimeHealth,
} from '@cloudless/runtime';
import { toShellScript, type Behaviour } from '@cloudless/runtime/conformance';
import { systemClock } from '@cloudless/app-kit';
import { isAlive, readStartToken } from '@cloudless/app-kit/background';
import { openProcessRuntime, type ProcessRuntime } from './index.js';
import {
  openRealMachine,
  findProcesses,
  createRuntimeOptions,
  SUPERVISOR_COMMAND,
  waitUntil,
  type RealMachine,
} from './testing/real-machine.js';
import { bundleProgram } from './testing/bundle-program.js';
import { ANSWER_TIMEOUT_MS } from './client/supervisor-connection.js';
import { SILENT_AFTER_MS } from './client/supervisor-link.js';
import { MONITOR_INTERVAL_MS } from './client/supervisor-monitor.js';
import { layout } from './supervisor/container/container-paths.js';
import { FrameParser } from './wire/frames.js';
import {
  encodeMessage,
  parseMessage,
  PROTOCOL,
  type ClientMessage,
  type SupervisorMessage,
} from './wire/messages.js';

type SupervisorRequestMessage = Exclude<ClientMessage, { type: 'hello' }>;

const random = createSeededRandom(99);
const never = (): AbortSignal => new AbortController().signal;
const aContainerId = (): ContainerId => toContainerId(randomHex(random, 32));
const toText = (line: LogLine): string => Buffer.from(line.text).toString();

let machine: RealMachine;
const machines: RealMachine[] = [];
async function aMachine(
  overrides: Parameters<typeof openRealMachine>[0] = {},
): Promise<RealMachine> {
  machine = await openRealMachine(overrides);
  machines.push(machine);
  return machine;
}
afterEach(async () => {
  for (const each of machines.splice(0)) await each.dispose();
});

function request(
  behaviour: Behaviour,
  overrides: Partial<ContainerRequest> = {},
): ContainerRequest {
  return {
    containerId: aContainerId(),
    labels: {},
    command: machine.command(behaviour),
    args: [],
    env: {},
    ports: [],
    limits: {},
    ...overrides,
  };
}

async function readLines(
  runtime: ContainerRuntime,
  id: ContainerId,
  follow = true,
): Promise<readonly string[]> {
  const all: string[] = [];
  for await (const line of runtime.logs(id, { follow }, never())) all.push(toText(line));
  return all;
}

async function waitForExit(runtime: ContainerRuntime, id: ContainerId): Promise<ContainerStatus> {
  const events = runtime.events(never());
  const listed = (await runtime.list()).find(({ containerId }) => containerId === id);
  if (listed?.phase === 'exited') return listed;
  for await (const { kind, status } of events)
    if (kind === 'exited' && status.containerId === id) return status;
  throw new Error('the events ended');
}

async function execText(
  runtime: ContainerRuntime,
  id: ContainerId,
  script: string,
): Promise<string> {
  let text = '';
  for await (const event of runtime.exec(id, { command: ['/bin/sh', '-c', script] }, never())) {
    if (event.kind === 'output') text += Buffer.from(event.data).toString();
  }
  return text;
}

const numberedLines = (to: number): readonly string[] =>
  Array.from({ length: to }, (_, index) => `line ${index + 1}`);

describe('ProcessRuntime, when its supervisor is killed,', () => {
  async function killSupervisor(): Promise<void> {
    const pid = await machine.runtime.supervisorPid();
    const token = readStartToken(pid) ?? '';
    const lost = machine.runtime.events(never())[Symbol.asyncIterator]().next();
    process.kill(pid, 'SIGKILL');
    await expect(lost).rejects.toMatchObject({ kind: 'unavailable' });
    await waitUntil(() => !isAlive(pid, token));
  }

  it('keeps processes, ports and a complete log, because the next supervisor adopts them', async () => {
    const { runtime } = await aMachine();
    const containerRequest = request(
      [
        { step: 'number', stream: 'stdout', from: 1, to: 500 },
        { step: 'write', stream: 'stdout', text: 'half a ' },
        { step: 'gate', name: 'go' },
        { step: 'write', stream: 'stdout', text: 'line\n' },
        { step: 'number', stream: 'stdout', from: 501, to: 600 },
        { step: 'hold' },
      ],
      {
        ports: [{ name: 'http', port: 80, protocol: 'tcp' }],
        labels: { replica: 'web-1' },
        env: { NAME: 'kept' },
      },
    );
    const { containerId } = await runtime.start(containerRequest);
    const follower = runtime.logs(containerId, { follow: true }, never())[Symbol.asyncIterator]();
    const seen: string[] = [];
    const readTo = async (lastLine: string): Promise<void> => {
      while (seen.at(-1) !== lastLine) seen.push(toText((await follower.next()).value as LogLine));
    };
    await readTo('line 500');
    const before = await runtime.list();
    await killSupervisor();
    expect(await runtime.list()).toEqual(before);
    await machine.openGate('go');
    await readTo('line 600');
    expect(seen).toEqual([...numberedLines(500), 'half a line', ...numberedLines(600).slice(500)]);
    expect(await execText(runtime, containerId, 'echo $NAME')).toBe('kept\n');
    expect(await runtime.stop(containerId, 0)).toMatchObject({ phase: 'exited', exitCode: 137 });
    expect(findProcesses(machine)).toEqual([]);
  });

  it('reports the output and the exit code of a container that ended while no supervisor ran', async () => {
    const { runtime } = await aMachine();
    const { containerId, pid = 0 } = await runtime.start(
      request([
        { step: 'gate', name: 'go' },
        { step: 'number', stream: 'stdout', from: 1, to: 100 },
        { step: 'exit', code: 3 },
      ]),
    );
    const token = readStartToken(pid) ?? '';
    await runtime.list();
    const supervisor = await runtime.supervisorPid();
    process.kill(supervisor, 'SIGSTOP'); // so that it does not observe the end of the container
    await machine.openGate('go');
    await waitUntil(() => !isAlive(pid, token));
    process.kill(supervisor, 'SIGKILL');
    await waitUntil(() => readStartToken(supervisor) === undefined);
    const status = await retryWhileUnavailable(() => waitForExit(runtime, containerId));
    expect(status).toMatchObject({ exitCode: 3, reason: 'exit code 3' });
    expect(await readLines(runtime, containerId)).toEqual(numberedLines(100));
  });

  it('ends containers whose lease expires under the next supervisor, and keeps renewed containers', async () => {
    const { runtime } = await aMachine();
    const lease = { leaseMs: 3_600_000, graceMs: 0 };
    const ids = await Promise.all(
      [0, 1].map(
        async () => (await runtime.start(request([{ step: 'hold' }], { lease }))).containerId,
      ),
    );
    const ends = ids.map((id) => retryWhileUnavailable(() => waitForExit(runtime, id)));
    const [short, long] = [1_500, 600_000].map((leaseMs) => ({ leaseMs, graceMs: 0 }));
    await runtime.renew(new Map(ids.map((id, index) => [id, index === 0 ? short : long])));
    await killSupervisor();
    await runtime.renew(new Map([[ids[1] as ContainerId, lease]]));
    expect(await ends[0]).toMatchObject({ phase: 'exited', leaseEnded: true });
    expect((await runtime.list()).map(({ phase }) => phase).sort()).toEqual(['exited', 'running']);
    await runtime.stop(ids[1] as ContainerId, 0);
    await ends[1];
  });

  it('counts a renewed lease from the call of renew, which waits for the next supervisor', async () => {
    let skewMs = 0;
    const { runtime, directory } = await aMachine({
      clock: { ...systemClock, now: () => systemClock.now() + skewMs },
    });
    const long = { leaseMs: 3_600_000, graceMs: 0 };
    const { containerId } = await runtime.start(request([{ step: 'hold' }], { lease: long }));
    await killSupervisor();
    const renewed = runtime.renew(new Map([[containerId, { leaseMs: 105_000, graceMs: 0 }]]));
    skewMs = 5_000; // the time that the call waits for the next supervisor
    await renewed;
    const [, written = ''] = readFileSync(layout.leases(directory), 'utf8').split('\n');
    const remainingSeconds = Number(written.split(' ')[0]) / 100 - uptime();
    expect(remainingSeconds).toBeLessThan(101);
    expect(remainingSeconds).toBeGreaterThan(50);
  });

  it('refuses a renewal whose lease ends during the wait for a supervisor', async () => {
    let skewMs = 0;
    const { runtime } = await aMachine({
      clock: { ...systemClock, now: () => systemClock.now() + skewMs },
    });
    const { containerId } = await runtime.start(request([{ step: 'hold' }]));
    await killSupervisor();
    const [short, long] = [5_000, 600_000].map((leaseMs) => ({ leaseMs, graceMs: 0 }));
    const refused = expect(runtime.renew(new Map([[containerId, short]]))).rejects.toMatchObject({
      kind: 'unavailable',
      message: 'lease: ended before the supervisor read its renewal',
    });
    skewMs = 5_000;
    await refused;
    await runtime.renew(new Map([[containerId, long]]));
    expect(await runtime.list()).toMatchObject([{ containerId, phase: 'running' }]);
  });

  it('enforces leases and reports exits although the record of a container cannot be written', async () => {
    const { runtime, directory } = await aMachine();
    const lease = { leaseMs: 3_600_000, graceMs: 0 };
    const [first, second] = await Promise.all(
      [0, 1].map(
        async () => (await runtime.start(request([{ step: 'hold' }], { lease }))).containerId,
      ),
    );
    if (first === undefined || second === undefined) throw new Error('two containers were started');
    mkdirSync(path.join(layout.container(directory, first), 'state.json.new')); // as on a full disk
    const end = waitForExit(runtime, second);
    const leases = new Map([first, second].map((id) => [id, { leaseMs: 2_000, graceMs: 0 }]));
    const firstEnd = waitForExit(runtime, first);
    await expect(runtime.renew(leases)).rejects.toThrow('EISDIR');
    expect(await end).toMatchObject({ leaseEnded: true });
    expect(await firstEnd).toMatchObject({ leaseEnded: true });
    expect(await runtime.stop(first, 0)).toMatchObject({ phase: 'exited' });
  });

  it('kills the processes of running commands, and fails the calls with kind unavailable', async () => {
    const { runtime } = await aMachine();
    const { containerId } = await runtime.start(request([{ step: 'hold' }]));
    const running = runtime.exec(
      containerId,
      { command: machine.command([{ step: 'child', name: 'orphan' }, { step: 'hold' }]) },
      never(),
    );
    const outcome = expect(running[Symbol.asyncIterator]().next()).rejects.toMatchObject({
      kind: 'unavailable',
    });
    await machine.waitForChildStart('orphan');
    await killSupervisor();
    await outcome;
    await runtime.list();
    await machine.waitForChildEnd('orphan');
  });

  it('reports containers as lost with the machine when the machine was restarted as well', async () => {
    const { runtime } = await aMachine();
    const { containerId } = await runtime.start(
      request([{ step: 'hold' }], { labels: { replica: 'a' } }),
    );
    await runtime.close();
    const state = path.join(machine.directory, 'containers', containerId, 'state.json');
    const [supervisor = 0] = findSupervisors(machine.directory);
    process.kill(supervisor, 'SIGKILL');
    await waitUntil(() => readStartToken(supervisor) === undefined);
    writeFileSync(
      state,
      readFileSync(state, 'utf8').replace(/"bootId":"[^"]*"/, '"bootId":"another"'),
    );
    const newRuntime = await machine.reopen();
    expect(await newRuntime.list()).toMatchObject([
      { phase: 'exited', exitCode: -1, reason: 'lost with the machine', labels: { replica: 'a' } },
    ]);
    expect(await readLines(newRuntime, containerId)).toEqual([]);
  });

  it('removes containers whose record is damaged or whose start was not finished', async () => {
    const { runtime } = await aMachine();
    const ids = await Promise.all(
      [0, 1].map(async () => (await runtime.start(request([{ step: 'hold' }]))).containerId),
    );
    await runtime.close();
    const [supervisor = 0] = findSupervisors(machine.directory);
    process.kill(supervisor, 'SIGKILL');
    await waitUntil(() => readStartToken(supervisor) === undefined);
    const state = (id: ContainerId | undefined): string =>
      path.join(machine.directory, 'containers', id ?? '', 'state.json');
    writeFileSync(state(ids[0]), '{"format":1,"phase":"run');
    writeFileSync(state(ids[1]), '{"format":1,"phase":"starting"}');
    const newRuntime = await machine.reopen();
    expect(await newRuntime.list()).toEqual([]);
    expect(readdirSync(path.join(machine.directory, 'containers'))).toEqual([]);
    await waitUntil(() => findProcesses(machine).length === 0);
  });
});

/** Finds the process ids of the supervisors of a directory by their arguments. */
function findSupervisors(directory: string): readonly number[] {
  return readdirSync('/proc').flatMap((entry) => {
    try {
      const args = readFileSync(`/proc/${entry}/cmdline`, 'utf8').split('\0');
      return /^\d+$/.test(entry) &&
        args.includes(directory) &&
        args.some((arg) => arg.endsWith('supervisor-main.mjs'))
        ? [Number(entry)]
        : [];
    } catch {
      return [];
    }
  });
}

async function retryWhileUnavailable<Result>(action: () => Promise<Result>): Promise<Result> {
  for (;;) {
    try {
      return await action();
    } catch (reason) {
      if ((reason as { kind?: string }).kind !== 'unavailable') throw reason;
    }
  }
}

describe('ProcessRuntime', () => {
  it('runs the example of the README', async () => {
    const { runtime } = await aMachine();
    const { containerId } = await runtime.start(
      request([], { command: ['/bin/sh', '-c', 'echo hello; exit 3'] }),
    );
    expect(await readLines(runtime, containerId)).toEqual(['hello']);
    expect(await waitForExit(runtime, containerId)).toMatchObject({ exitCode: 3 });
    await runtime.shutdown();
    expect(findProcesses(machine)).toEqual([]);
  });

  it('keeps the supervisor and its containers when the supervisor gets SIGTERM', async () => {
    const { runtime } = await aMachine();
    const { containerId } = await runtime.start(request([{ step: 'hold' }]));
    const supervisor = await runtime.supervisorPid();
    process.kill(supervisor, 'SIGTERM');
    expect(await runtime.supervisorPid()).toBe(supervisor);
    expect((await runtime.list()).map(({ phase }) => phase)).toEqual(['running']);
    expect(await runtime.stop(containerId, 0)).toMatchObject({ phase: 'exited' });
  });

  it('reports an exit with code 137 when the process of a container is killed', async () => {
    const { runtime } = await aMachine();
    const { containerId, pid = 0 } = await runtime.start(request([{ step: 'hold' }]));
    const exit = waitForExit(runtime, containerId);
    await runtime.list();
    process.kill(pid, 'SIGKILL');
    expect(await exit).toMatchObject({ exitCode: 137, reason: 'killed by SIGKILL' });
  });

  it('loses and repeats no log line when the client is killed while its container writes', async () => {
    await aMachine();
    const id = aContainerId();
    const script = toShellScript(
      [{ step: 'number', stream: 'stdout', from: 1, to: 10_000 }],
      '/nowhere',
    );
    const [node = '', main = ''] = bundleProgram('client-main');
    const client = spawn(node, [main, machine.directory, id, script, ...SUPERVISOR_COMMAND], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const closed = new Promise((resolve) => client.once('exit', resolve));
    await new Promise<void>((resolve) => client.stdout.once('data', () => resolve()));
    client.kill('SIGKILL');
    await closed;
    expect(await readLines(machine.runtime, id)).toEqual(numberedLines(10_000));
  }, 20_000);

  it('kills a daemon that left the session of its container when the container ends', async () => {
    const { runtime } = await aMachine();
    const script = `setsid sh -c 'echo $$ > ${machine.directory}/daemon; exec sleep 3600' >/dev/null 2>&1 & until [ -s ${machine.directory}/daemon ]; do sleep 0.02; done`;
    const { containerId } = await runtime.start(
      request([], { command: ['/bin/sh', '-c', script] }),
    );
    await waitForExit(runtime, containerId);
    const daemon = Number(readFileSync(path.join(machine.directory, 'daemon'), 'utf8'));
    await waitUntil(() => readStartToken(daemon) === undefined);
  });

  it('starts a container with PATH, HOME, its own variables, ports and mark only', async () => {
    const { runtime } = await aMachine();
    const containerRequest = request([], {
      command: ['env'],
      env: { OWN: 'yes' },
      ports: [
        { name: 'http', port: 80, protocol: 'tcp' },
        { name: 'dns-in', port: 53, protocol: 'udp' },
      ],
    });
    const { containerId, endpoints } = await runtime.start(containerRequest);
    const variables = Object.fromEntries(
      (await readLines(runtime, containerId)).map((line) => line.split('=') as [string, string]),
    );
    const [http, dns] = endpoints.map(({ port }) => String(port));
    expect(variables).toEqual({
      PATH: expect.stringContaining('/usr/bin'),
      HOME: path.join(machine.directory, 'containers', containerId, 'work'),
      OWN: 'yes',
      PORT: http,
      CLOUDLESS_PORT_HTTP: http,
      CLOUDLESS_PORT_DNS_IN: dns,
      CLOUDLESS_CONTAINER_ID: containerId,
    });
  });

  it('lets containers and commands write to /dev/stderr', async () => {
    const { runtime } = await aMachine();
    const { containerId } = await runtime.start(
      request([], {
        command: ['/bin/sh', '-c', 'echo a >/dev/stderr; echo b >/dev/stdout; exec sleep 3600'],
      }),
    );
    expect(
      await execText(runtime, containerId, 'echo c >/dev/stderr; echo d >/dev/stdout'),
    ).toMatch(/^(c\nd\n|d\nc\n)$/);
    await runtime.stop(containerId, 0);
    expect([...(await readLines(runtime, containerId))].sort()).toEqual(['a', 'b']);
  });

  it.each([
    {
      name: 'a working directory that does not exist',
      overrides: { workingDir: '/no/such/place' },
      kind: 'invalid',
      text: /workingDir: no directory/,
    },
    {
      name: 'a command that is a directory',
      overrides: { command: ['/tmp'] },
      kind: 'invalid',
      text: /\/tmp is not executable/,
    },
    { name: 'a NUL in an argument', overrides: { args: ['a\0b'] }, kind: 'invalid', text: /NUL/ },
    { name: 'an image', overrides: { image: 'nginx' }, kind: 'unimplemented', text: /image/ },
    {
      name: 'a memory limit',
      overrides: { limits: { memoryBytes: 1 } },
      kind: 'unimplemented',
      text: /limits\.memoryBytes/,
    },
    {
      name: 'a limit of the number of processes',
      overrides: { limits: { pids: 1 } },
      kind: 'unimplemented',
      text: /limits\.pids/,
    },
    {
      name: 'a host port',
      overrides: { ports: [{ name: 'http', port: 80, protocol: 'tcp' as const, hostPort: 80 }] },
      kind: 'unimplemented',
      text: /ports\.hostPort/,
    },
    {
      name: 'a volume',
      overrides: {
        volumes: [
          { name: 'a', mountPath: '/a', readOnly: false, source: { kind: 'emptyDir' as const } },
        ],
      },
      kind: 'unimplemented',
      text: /volumes: the process runtime mounts no volumes/,
    },
    {
      name: 'a security context',
      overrides: { security: {} },
      kind: 'unimplemented',
      text: /security/,
    },
    {
      name: 'a network',
      overrides: { network: { hostNetwork: true } },
      kind: 'unimplemented',
      text: /network/,
    },
    {
      name: 'a CPU limit',
      overrides: { limits: { cpuMillis: 1 } },
      kind: 'unimplemented',
      text: /limits\.cpuMillis/,
    },
    {
      name: 'variables of more than 1 MiB',
      overrides: { env: { BIG: 'x'.repeat(1 << 20) } },
      kind: 'invalid',
      text: /1 MiB/,
    },
    {
      name: 'a script whose interpreter is missing',
      overrides: { command: ['SCRIPT'] },
      kind: 'invalid',
      text: /cannot be started/,
    },
  ])('rejects a start with $name, and leaves no files', async ({ overrides, kind, text }) => {
    const { runtime } = await aMachine();
    const script = path.join(machine.directory, 'script');
    writeFileSync(script, '#!/no/such/interpreter\n', { mode: 0o700 });
    const command = overrides.command?.[0] === 'SCRIPT' ? { command: [script] } : {};
    const refused = runtime.start(request([{ step: 'hold' }], { ...overrides, ...command }));
    await expect(refused).rejects.toMatchObject({ kind, message: expect.stringMatching(text) });
    expect(readdirSync(path.join(machine.directory, 'containers'))).toEqual([]);
  });

  it.each([
    '',
    '../x',
    'a'.repeat(63),
    'A'.repeat(64),
    `${'a'.repeat(63)}/`,
    `${'a'.repeat(64)}\0`,
  ])('rejects the malformed container id %j in every call', async (text) => {
    const { runtime } = await aMachine();
    const id = toContainerId(text);
    const invalid = { kind: 'invalid' };
    await expect(runtime.start(request([], { containerId: id }))).rejects.toMatchObject(invalid);
    await expect(runtime.stop(id, 0)).rejects.toMatchObject(invalid);
    await expect(runtime.remove(id)).rejects.toMatchObject(invalid);
    await expect(readLines(runtime, id)).rejects.toMatchObject(invalid);
    await expect(execText(runtime, id, 'true')).rejects.toMatchObject(invalid);
  });
});

describe('ports of the process runtime', () => {
  it('are free on the machine, released when their container ends, and limited to the range', async () => {
    const { server, port: occupied } = await listenBeforeFreePort();
    const { runtime } = await aMachine({ portRange: { from: occupied, to: occupied + 1 } });
    const ports = [{ name: 'http', port: 80, protocol: 'tcp' as const }];
    const first = await runtime.start(request([{ step: 'hold' }], { ports }));
    expect(first.endpoints).toEqual([{ portName: 'http', ip: '127.0.0.1', port: occupied + 1 }]);
    await expect(runtime.start(request([{ step: 'hold' }], { ports }))).rejects.toMatchObject({
      kind: 'exhausted',
    });
    await runtime.stop(first.containerId, 0);
    expect((await runtime.start(request([{ step: 'hold' }], { ports }))).endpoints).toEqual(
      first.endpoints,
    );
    await closeServer(server);
  });
});

describe('the supervisor', () => {
  it('is started once when many clients open the directory at the same time', async () => {
    await aMachine();
    await machine.runtime.shutdown();
    const clients = await Promise.all(Array.from({ length: 4 }, () => machine.openAnother()));
    const pids = new Set(await Promise.all(clients.map((client) => client.supervisorPid())));
    expect(pids.size).toBe(1);
    await waitUntil(() => findSupervisors(machine.directory).length === 1);
    expect(findSupervisors(machine.directory)).toEqual([...pids]);
  });

  it('exits when it is idle, and keeps the records of ended containers', async () => {
    const { runtime } = await aMachine({ idleMs: 100 });
    const pid = await runtime.supervisorPid();
    const token = readStartToken(pid) ?? '';
    const { containerId } = await runtime.start(request([{ step: 'exit', code: 6 }]));
    await waitForExit(runtime, containerId);
    await runtime.close();
    await waitUntil(() => !isAlive(pid, token));
    expect(await (await machine.reopen()).list()).toMatchObject([{ containerId, exitCode: 6 }]);
  });

  it('reports for how long a stopped supervisor has not answered, until it continues', async () => {
    const { runtime } = await aMachine();
    const pid = await runtime.supervisorPid();
    expect(runtime.health?.()).toMatchObject({ processesSilentMs: 0, supervisorPid: pid });
    process.kill(pid, 'SIGSTOP');
    await waitUntil(() => (runtime.health?.().processesSilentMs ?? 0) > 0);
    process.kill(pid, 'SIGCONT');
    await waitUntil(() => runtime.health?.().processesSilentMs === 0);
  });

  it.each<{
    name: string;
    seconds: number;
    call: (runtime: ProcessRuntime, containerId: ContainerId) => Promise<unknown>;
  }>([
    {
      name: 'the renewal of leases',
      seconds: 10,
      call: (runtime, id) => runtime.renew(new Map([[id, undefined]])),
    },
    { name: 'a list', seconds: 10, call: (runtime) => runtime.list() },
    { name: 'a start', seconds: 10, call: (runtime) => runtime.start(request([])) },
    { name: 'a stop', seconds: 17, call: (runtime, id) => runtime.stop(id, 7_000) },
    { name: 'a signal', seconds: 10, call: (runtime, id) => runtime.signal(id, 'SIGHUP') },
    { name: 'a removal', seconds: 10, call: (runtime, id) => runtime.remove(id) },
    { name: 'a shutdown', seconds: 18, call: (runtime) => runtime.shutdown(8_000) },
    {
      name: 'the start of a log',
      seconds: 10,
      call: (runtime, id) => readLines(runtime, id),
    },
  ])('waits for the answer to $name for at most $seconds s', async ({ seconds, call }) => {
    const { runtime } = await aMachine();
    const { containerId } = await runtime.start(request([{ step: 'hold' }]));
    await runtime.close();
    let isStopped = false;
    const clock: Clock = {
      ...systemClock,
      setTimer: (delayMs, action) =>
        systemClock.setTimer(isStopped && delayMs === seconds * 1_000 ? 0 : delayMs, action),
    };
    const client = await openProcessRuntime({ ...createRuntimeOptions(machine.directory), clock });
    const pid = await client.supervisorPid();
    process.kill(pid, 'SIGSTOP');
    isStopped = true;
    try {
      await expect(call(client, containerId)).rejects.toMatchObject({
        kind: 'unavailable',
        message: `the supervisor of the processes does not answer: no reply within ${seconds} s`,
      });
    } finally {
      process.kill(pid, 'SIGCONT');
      await client.close();
    }
  });

  it('starts a process once when the answer to its start comes late', async () => {
    const { runtime } = await aMachine();
    await runtime.close();
    let isStopped = false;
    const clock: Clock = {
      ...systemClock,
      setTimer: (delayMs, action) =>
        systemClock.setTimer(isStopped && delayMs === ANSWER_TIMEOUT_MS ? 0 : delayMs, action),
    };
    const client = await openProcessRuntime({ ...createRuntimeOptions(machine.directory), clock });
    const pid = await client.supervisorPid();
    const started = request([], { command: ['sleep', '3600'] });
    const events = client.events(never())[Symbol.asyncIterator]();
    try {
      process.kill(pid, 'SIGSTOP');
      isStopped = true;
      const noAnswer = { kind: 'unavailable' };
      await expect(client.start(started)).rejects.toMatchObject(noAnswer);
      await expect(client.start(started)).rejects.toMatchObject(noAnswer); // as the agent retries
      isStopped = false;
      process.kill(pid, 'SIGCONT');
      const { containerId } = started;
      expect((await events.next()).value).toMatchObject({
        kind: 'started',
        status: { containerId },
      });
      await expect(client.start(started)).rejects.toMatchObject({ kind: 'exists' });
      expect(await client.list()).toMatchObject([{ containerId, phase: 'running' }]);
      expect(findProcesses(machine)).toHaveLength(1);
    } finally {
      process.kill(pid, 'SIGCONT');
      await client.close();
    }
  });

  it('reports no silence and the new process id after a silent supervisor was killed', async () => {
    const { runtime } = await aMachine();
    await runtime.close();
    let turnMs = 1;
    // The monitor makes no turn after the supervisor was found to be silent.
    const clock: Clock = {
      ...systemClock,
      setTimer: (delayMs, action) =>
        systemClock.setTimer(delayMs === MONITOR_INTERVAL_MS ? turnMs : delayMs, action),
    };
    const client = await openProcessRuntime({ ...createRuntimeOptions(machine.directory), clock });
    const pid = await client.supervisorPid();
    const token = readStartToken(pid) ?? '';
    const health = (): RuntimeHealth | undefined => client.health?.();
    try {
      process.kill(pid, 'SIGSTOP');
      await waitUntil(() => {
        if ((health()?.processesSilentMs ?? 0) >= SILENT_AFTER_MS) turnMs = 3_600_000;
        return turnMs > 1;
      });
      await new Promise((resolve) => systemClock.setTimer(2, () => resolve(undefined)));
      expect(health()?.supervisorPid).toBe(pid);
      process.kill(pid, 'SIGKILL');
      await waitUntil(() => ![undefined, pid].includes(health()?.supervisorPid));
      expect(health()?.processesSilentMs).toBe(0);
    } finally {
      if (isAlive(pid, token)) process.kill(pid, 'SIGKILL');
      await client.close();
    }
  });

  describe('beside a supervisor that SIGSTOP stopped before a client opens its directory,', () => {
    let pid: number;
    let token: string;
    let opened: ProcessRuntime | undefined;
    beforeEach(async () => {
      const { runtime } = await aMachine();
      await runtime.start(request([{ step: 'hold' }]));
      pid = await runtime.supervisorPid();
      token = readStartToken(pid) ?? '';
      await runtime.close();
      process.kill(pid, 'SIGSTOP');
    });
    afterEach(async () => {
      if (isAlive(pid, token)) process.kill(pid, 'SIGCONT');
      await opened?.close();
      opened = undefined;
    });
    const open = async (): Promise<ProcessRuntime> => {
      const options = createRuntimeOptions(machine.directory);
      return (opened = await openProcessRuntime({ ...options, acceptSilentSupervisor: true }));
    };

    it('the runtime reports its process id, and connects once the supervisor continues', async () => {
      // A client that does not accept a silent supervisor fails instead.
      const failing = openProcessRuntime(createRuntimeOptions(machine.directory));
      const failure = expect(failing).rejects.toMatchObject({
        kind: 'unavailable',
        message: expect.stringContaining(`(process ${pid}) has not answered for 5 s`),
      });
      const runtime = await open();
      await failure;
      // The node keeps what its running processes need.
      expect(runtime.capabilities()).toEqual(
        expect.arrayContaining([...machine.runtime.capabilities()]),
      );
      expect(await runtime.listAvailable?.()).toEqual({ containers: [], missing: ['process'] });
      expect(runtime.health?.().supervisorPid).toBe(pid);
      expect(runtime.health?.().processesSilentMs).toBeGreaterThanOrEqual(5_000);
      await expect(runtime.list()).rejects.toMatchObject({
        kind: 'unavailable',
        message: expect.stringContaining(`run kill -9 ${pid} on the machine`),
      });
      process.kill(pid, 'SIGCONT');
      await waitUntil(() => runtime.health?.().processesSilentMs === 0);
      await runtime.supervisorPid(); // the hello ends the silence, and the first list follows
      expect(await runtime.listAvailable?.()).toMatchObject({
        containers: [{ phase: 'running' }],
        missing: [],
      });
    });

    it('another supervisor replaces it after a kill, and the processes run on', async () => {
      const runtime = await open();
      const before = findProcesses(machine);
      process.kill(pid, 'SIGKILL');
      await waitUntil(() => ![undefined, pid].includes(runtime.health?.().supervisorPid));
      expect(await runtime.list()).toMatchObject([{ phase: 'running' }]);
      expect(findProcesses(machine)).toEqual(before);
    });

    it('an aborted start of a client ends at once', async () => {
      const abort = new AbortController();
      // With this clock, only the abort ends the wait for the supervisor.
      const withoutSilence: Clock = {
        ...systemClock,
        setTimer: (delayMs, action) =>
          delayMs === SILENT_AFTER_MS
            ? { cancel: () => undefined }
            : systemClock.setTimer(delayMs, action),
      };
      const opening = openProcessRuntime({
        ...createRuntimeOptions(machine.directory),
        clock: withoutSilence,
        signal: abort.signal,
      });
      const outcome = expect(opening).rejects.toThrow(StoppedError);
      await new Promise((resolve) => setImmediate(resolve));
      abort.abort();
      await outcome;
    });
  });

  it('leaves no process when it is killed before it answers a shutdown', async () => {
    const { runtime } = await aMachine();
    await runtime.start(request([{ step: 'child', name: 'c' }, { step: 'hold' }]));
    await machine.waitForChildStart('c');
    const pid = await runtime.supervisorPid();
    process.kill(pid, 'SIGSTOP');
    const ending = runtime.shutdown();
    await new Promise((resolve) => setImmediate(resolve)); // the request is sent
    process.kill(pid, 'SIGKILL');
    await ending;
    expect(findProcesses(machine)).toEqual([]);
  });

  it('leaves no process, descriptor, handle or timer after a shutdown', async () => {
    const timers = new Set<object>();
    const clock: Clock = {
      ...systemClock,
      setTimer: (delayMs, action) => {
        const timer = systemClock.setTimer(delayMs, () => {
          timers.delete(timer);
          action();
        });
        timers.add(timer);
        return {
          cancel: () => {
            timers.delete(timer);
            timer.cancel();
          },
        };
      },
    };
    const round = async (): Promise<void> => {
      const { runtime } = await aMachine({ clock });
      const pid = await runtime.supervisorPid();
      const behaviour: Behaviour = [
        { step: 'number', stream: 'stdout', from: 1, to: 5 },
        { step: 'child', name: 'c' },
        { step: 'hold' },
      ];
      const { containerId } = await runtime.start(request(behaviour));
      const following = readLines(runtime, containerId).catch(
        (reason: { kind: string }) => reason.kind,
      );
      await machine.waitForChildStart('c');
      await runtime.shutdown();
      expect([numberedLines(5), 'unavailable']).toContainEqual(await following);
      expect(readStartToken(pid)).toBeUndefined();
      expect(findProcesses(machine)).toEqual([]);
    };
    // Resources that Node.js creates once and keeps, such as its inotify descriptor, exist from now
    // on.
    await round();
    let before = await waitForStableResources();
    await round();
    let after = await waitForStableResources();
    while (after.handles.length < before.handles.length) {
      // A pipe of an earlier test was still closing: compare only complete states.
      before = after;
      await round();
      after = await waitForStableResources();
    }
    expect(after).toEqual(before);
    expect(timers.size).toBe(0);
  });

  it('has a private directory, socket and records, also when the path of the directory is long', async () => {
    const home = mkdtempSync(path.join(tmpdir(), 'cloudless-long-'));
    const directory = path.join(home, 'd'.repeat(120), 'runtime');
    const runtime = await openProcessRuntime(createRuntimeOptions(directory));
    const { containerId } = await runtime.start({ ...request([], { command: ['sleep', '3600'] }) });
    const mode = (...parts: string[]): number =>
      statSync(path.join(directory, ...parts)).mode & 0o777;
    expect([mode(), mode('socket'), mode('containers', containerId, 'state.json')]).toEqual([
      0o700, 0o600, 0o600,
    ]);
    await runtime.shutdown();
    rmSync(home, { recursive: true });
  });

  it('with denyStarts starts nothing, offers nothing, and manages what runs', async () => {
    const home = mkdtempSync(path.join(tmpdir(), 'cloudless-deny-'));
    const options = createRuntimeOptions(path.join(home, 'runtime'));
    const sleeper = { ...request([], { command: ['sleep', '3600'] }) };
    const first = await openProcessRuntime(options);
    const { containerId } = await first.start(sleeper);
    await first.close();
    const runtime = await openProcessRuntime({ ...options, denyStarts: true });
    const refusal = {
      kind: 'unimplemented',
      message:
        'command: this node lacks the capability runtime.process, because its agent runs with --deny-processes; use image',
    };
    await expect(runtime.start(sleeper)).rejects.toMatchObject(refusal);
    await expect(
      runtime.prepare(sleeper, () => undefined, new AbortController().signal),
    ).rejects.toMatchObject(refusal);
    expect(runtime.capabilities()).toEqual([]);
    expect((await runtime.list()).map((status) => status.containerId)).toEqual([containerId]);
    expect((await runtime.stop(containerId, 0)).containerId).toBe(containerId);
    await runtime.shutdown();
    rmSync(home, { recursive: true });
  });

  it('is not started in a directory that other users can read', async () => {
    const home = mkdtempSync(path.join(tmpdir(), 'cloudless-open-'));
    const directory = path.join(home, 'runtime');
    mkdirSync(directory);
    chmodSync(directory, 0o750);
    await expect(openProcessRuntime(createRuntimeOptions(directory))).rejects.toMatchObject({
      kind: 'precondition',
    });
    rmSync(home, { recursive: true });
  });
});

/**
 * Returns the held resources when all pending closes have finished. A resource that is never closed
 * is a leak and makes the test time out.
 */
async function waitForStableResources(): Promise<ReturnType<typeof listHeldResources>> {
  await waitUntil(() => !process.getActiveResourcesInfo().includes('CloseReq'));
  // A pipe whose descriptor is closed is listed until the next turns of the event loop.
  for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  return listHeldResources();
}

/**
 * Lists the resources of this process: descriptors, file watches (they share one descriptor),
 * handles. Pending requests belong to the test runner and are omitted.
 */
function listHeldResources(): {
  readonly descriptors: number;
  readonly watches: number;
  readonly handles: readonly string[];
} {
  const descriptors = readdirSync('/proc/self/fd');
  const watches = descriptors.flatMap((fd) => {
    try {
      return readFileSync(`/proc/self/fdinfo/${fd}`, 'latin1').match(/^inotify wd:/gm) ?? [];
    } catch {
      return []; // the descriptor that listed the directory
    }
  }).length;
  const handles = process
    .getActiveResourcesInfo()
    .filter((kind) => !['FSReqCallback', 'Immediate', 'Timeout'].includes(kind));
  return { descriptors: descriptors.length, watches, handles: handles.sort() };
}

/**
 * Serves a directory in this process, as a supervisor of version 0.0.1 without containers.
 * @param answer - Returns another answer to a request; undefined: none. Default: done.
 */
async function serveOlderSupervisor(
  directory: string,
  answer: (request: SupervisorRequestMessage) => SupervisorMessage | undefined = ({ id }) => ({
    type: 'done',
    id,
  }),
): Promise<Server> {
  const server = createServer((socket) => {
    const parser = new FrameParser();
    socket.on('data', (chunk: Buffer) => {
      for (const { payload } of parser.feed(chunk)) {
        const message = parseMessage<ClientMessage>(payload);
        const { pid } = process;
        const reply: SupervisorMessage | undefined =
          message.type === 'hello'
            ? { type: 'hello', protocol: PROTOCOL, version: '0.0.1', pid }
            : answer(message);
        if (reply !== undefined) socket.write(encodeMessage(reply));
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(layout.socket(directory), resolve));
  return server;
}

describe('ProcessRuntime, with a running supervisor of an older version,', () => {
  it('refuses starts and renewals with a lease, because the supervisor lacks the capability', async () => {
    const directory = mkdtempSync(path.join(tmpdir(), 'cloudless-older-'));
    const server = await serveOlderSupervisor(directory);
    const runtime = await openProcessRuntime(createRuntimeOptions(directory));
    try {
      expect(runtime.capabilities()).toEqual(['runtime.process']);
      const lease = { leaseMs: 1_000, graceMs: 0 };
      const leasedRequest = {
        containerId: aContainerId(),
        labels: {},
        command: ['sleep'],
        args: [],
        env: {},
        ports: [],
        limits: {},
        lease,
      };
      const refused = {
        kind: 'unimplemented',
        message: expect.stringContaining('version 0.0.1) lacks the capability'),
      };
      await expect(runtime.start(leasedRequest)).rejects.toMatchObject(refused);
      await expect(
        runtime.renew(new Map([[leasedRequest.containerId, lease]])),
      ).rejects.toMatchObject(refused);
    } finally {
      await runtime.close();
      await new Promise<void>((resolve) => server.close(() => resolve()));
      rmSync(directory, { recursive: true, force: true });
    }
  });

  it('waits for the rest of the output of an ended process for at most 10 s', async () => {
    const directory = mkdtempSync(path.join(tmpdir(), 'cloudless-older-'));
    const containerId = aContainerId();
    const status = { containerId, phase: 'exited' } as ContainerStatus;
    const requestTypes: string[] = [];
    const server = await serveOlderSupervisor(directory, ({ type, id }) => {
      requestTypes.push(type);
      if (type === 'drained') return undefined;
      return { type: 'done', id, ...(type === 'inspect' && { status }) };
    });
    const clock: Clock = {
      ...systemClock,
      setTimer: (delayMs, action) =>
        systemClock.setTimer(delayMs === ANSWER_TIMEOUT_MS ? 100 : delayMs, action),
    };
    const runtime = await openProcessRuntime({ ...createRuntimeOptions(directory), clock });
    try {
      await expect(readLines(runtime, containerId, false)).rejects.toMatchObject({
        kind: 'unavailable',
        message: 'the supervisor of the processes does not answer: no reply within 10 s',
      });
      expect(requestTypes).toContain('drained');
    } finally {
      await runtime.close();
      await new Promise<void>((resolve) => server.close(() => resolve()));
      rmSync(directory, { recursive: true, force: true });
    }
  });

  it('fails a shutdown whose supervisor has not exited after 10 s, and names the process', async () => {
    const directory = mkdtempSync(path.join(tmpdir(), 'cloudless-older-'));
    const server = await serveOlderSupervisor(directory);
    let skewMs = 0;
    const clock: Clock = {
      ...systemClock,
      now: () => systemClock.now() + skewMs,
      setTimer: (delayMs, action) => {
        skewMs += delayMs < 5 ? 5_000 : 0; // the pauses of the wait for the exit
        return systemClock.setTimer(delayMs, action);
      },
    };
    const runtime = await openProcessRuntime({ ...createRuntimeOptions(directory), clock });
    try {
      await expect(runtime.shutdown()).rejects.toMatchObject({
        kind: 'unavailable',
        message: `the supervisor of the processes (process ${process.pid}) has ended all processes and has not exited within 10 s: run kill -9 ${process.pid} on the machine`,
      });
    } finally {
      await runtime.close();
      await new Promise<void>((resolve) => server.close(() => resolve()));
      rmSync(directory, { recursive: true, force: true });
    }
  });
});

/**
 * Listens on a port whose successor is free. Both are below the range from which the kernel chooses
 * ports, so that no other process gets the free one meanwhile.
 */
async function listenBeforeFreePort(): Promise<{
  readonly server: Server;
  readonly port: number;
}> {
  for (;;) {
    const port = 10_000 + Math.floor(Math.random() * 20_000);
    const server = await listenOn(port);
    const next = server && (await listenOn(port + 1));
    await closeServer(next);
    if (server !== undefined && next !== undefined) return { server, port };
    await closeServer(server);
  }
}

/** Returns a server that listens on the port of the loopback address; undefined when it is taken. */
function listenOn(port: number): Promise<Server | undefined> {
  const server = createServer();
  return new Promise((resolve) => {
    server.once('error', () => resolve(undefined));
    server.listen(port, '127.0.0.1', () => resolve(server));
  });
}

async function closeServer(server: Server | undefined): Promise<void> {
  if (server !== undefined) await new Promise((resolve) => server.close(resolve));
}
