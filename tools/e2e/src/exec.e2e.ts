import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { createGrpcTransport } from '@connectrpc/connect-node';
import { createAgentClient, type CoordinatorClient } from '@cloudless/api';
import { definedFields } from '@cloudless/base';
import { QUICK, RealCluster } from './support/cluster.js';
import { ExecCall, ForwardCall } from './support/exec-call.js';
import { listProcessesMentioning } from './support/processes.js';

let cluster: RealCluster;
let agentAddress: string;
/** A single client, because each client keeps a connection for a while. */
let client: CoordinatorClient;
beforeAll(async () => {
  cluster = await RealCluster.start([]);
  agentAddress = await cluster.startAgent('agent-1', 'zone-a');
  client = cluster.client;
  await client.createWorkload({
    name: 'web',
    spec: { ...QUICK, command: ['sleep', '1000'], env: { COLOUR: 'blue', SIZE: 'small' } },
  });
  await client.createWorkload({
    name: 'echo',
    spec: {
      ...QUICK,
      command: [
        'node',
        '-e',
        `require('node:net').createServer({ allowHalfOpen: true }, (s) => s.on('error', () => s.destroy()).pipe(s)).listen(process.env.PORT)`,
      ],
      ports: [{ name: 'echo', containerPort: 7 }],
    },
  });
  await cluster.waitUntilSettled('web');
  await cluster.waitUntilSettled('echo');
});
afterAll(() => cluster.stop());

const startShell = (script: string): string[] => ['/bin/sh', '-c', script];
const start = (command: string[]) => ({ name: 'web', command });
/** Calls after which the resources of cancelled calls must have been released. */
const MAX_CHECKS = 2_000;

const waitUntilGone = async (text: string): Promise<void> => {
  while (listProcessesMentioning(text).length > 0) await client.listWorkloads({});
};

describe('Exec', () => {
  it('streams input and output, sets environment variables and returns the exit code', async () => {
    const call = new ExecCall(client, {
      ...start(startShell('echo $COLOUR $SIZE; echo oops >&2; cat; exit 3')),
      env: { SIZE: 'big' },
    });
    const [replica] = (await cluster.waitUntilSettled('web')).status!.replicas;
    expect(await call.readNext()).toMatchObject({
      case: 'started',
      value: { replicaId: replica!.id, containerId: replica!.containerId, nodeId: 'agent-1' },
    });
    call.sendText('one');
    await call.readUntil((text) => text === 'blue big\none');
    call.sendText(' two');
    await call.readUntil((text) => text.endsWith('one two'));
    call.endInput();
    expect(await call.readExitCode()).toBe(3);
    expect(call.text).toEqual({ stdout: 'blue big\none two', stderr: 'oops\n' });
  });

  it('allocates a terminal that follows the window size', async () => {
    const call = new ExecCall(client, { ...start(['sh']), tty: { columns: 70, rows: 20 } });
    call.sendText('stty size; read x; stty size; exit 4\n');
    await call.readUntil((text) => text.includes('20 70'));
    call.sendRequest({ case: 'resize', value: { columns: 90, rows: 33 } });
    call.sendText('\n');
    expect(await call.readExitCode()).toBe(4);
    expect(call.text.stdout).toContain('33 90');
  });

  it('and PortForward work on the port of the agent', async () => {
    const agent = createAgentClient(createGrpcTransport({ baseUrl: `http://${agentAddress}` }));
    const call = new ExecCall(agent, start(['cat']));
    call.sendText('direct');
    call.sendRequest({ case: 'stdinEnd', value: {} });
    expect(await call.readExitCode()).toBe(0);
    expect(call.text.stdout).toBe('direct');
    const forward = new ForwardCall(agent, { name: 'echo' });
    expect(await forward.readNext()).toMatchObject({
      case: 'started',
      value: { portName: 'echo' },
    });
    forward.sendText('hi');
    forward.endInput();
    expect(await forward.readNext()).toMatchObject({ case: 'data', value: Buffer.from('hi') });
    expect(await forward.readNext()).toMatchObject({ case: 'end' });
    expect(await forward.readNext()).toBeUndefined();
  });

  it('rejects a call whose first message is not the start message', async () => {
    const call = client.exec((async function* () {})());
    await expect(call[Symbol.asyncIterator]().next()).rejects.toThrow(
      'start: must be the first message',
    );
  });

  it('returns exit code 127 and a message on stderr for an unknown command', async () => {
    const call = new ExecCall(client, start(['no-such-thing']));
    expect(await call.readExitCode()).toBe(127);
    expect(call.text).toEqual({
      stdout: '',
      stderr: expect.stringContaining('no executable no-such-thing in PATH'),
    });
  });

  it('fails after a resize without a terminal, and when the command exceeds its timeout', async () => {
    const sized = new ExecCall(client, start(['cat']));
    sized.sendRequest({ case: 'resize', value: { columns: 1, rows: 1 } });
    await expect(sized.readExitCode()).rejects.toThrow('resize: the command has no terminal');
    const timedOut = new ExecCall(client, {
      ...start(['sleep', '77']),
      timeout: { seconds: 0n, nanos: 200_000_000 },
    });
    await expect(timedOut.readExitCode()).rejects.toThrow('the command took longer than 200 ms');
  });

  it('stops the command from writing while its reader is slow, and loses no output', async () => {
    const endFile = join(cluster.directory, 'written');
    const bytes = 128 * 1024 * 1024;
    const memoryBefore = [cluster.coordinatorProcess.pid, cluster.requireAgent('agent-1').pid].map(
      readResidentBytes,
    );
    const call = new ExecCall(
      client,
      start(startShell(`head -c ${bytes} /dev/zero; touch ${endFile}`)),
    );
    await call.readNext();
    await call.readNext();
    for (let count = 0; count < 200; count += 1) await client.listWorkloads({});
    expect(existsSync(endFile)).toBe(false);
    const memoryAfter = [cluster.coordinatorProcess.pid, cluster.requireAgent('agent-1').pid].map(
      readResidentBytes,
    );
    memoryAfter.forEach((bytesAfter, index) =>
      expect(bytesAfter - memoryBefore[index]!).toBeLessThan(bytes / 2),
    );
    expect(await call.readExitCode()).toBe(0);
    expect(call.bytes).toBe(bytes);
    expect(existsSync(endFile)).toBe(true);
  });
});

describe('command of Exec', () => {
  /** Sends 6 MiB of input, more than any buffer on the way. */
  const sendMuchInput = (call: ExecCall): void => {
    for (let count = 0; count < 100; count += 1)
      call.sendRequest({ case: 'stdin', value: new Uint8Array(64 * 1024) });
  };
  it.each([
    { name: 'a silent command', number: 40_001, script: 'sleep 40001', load: () => undefined },
    {
      name: 'a command that does not read its input',
      number: 40_002,
      script: 'sleep 40002',
      load: sendMuchInput,
    },
    {
      name: 'a command that is blocked by its reader',
      number: 40_003,
      script: 'yes 40003 | cat',
      load: () => undefined,
    },
    {
      name: 'a command that ignores SIGTERM',
      number: 40_004,
      script: `trap '' TERM HUP; sleep 40004; sleep 40004`,
      load: sendMuchInput,
    },
    {
      name: 'a command with a terminal',
      number: 40_005,
      script: 'sleep 40005',
      tty: { columns: 80, rows: 24 },
      load: sendMuchInput,
    },
  ])(
    'ends within 10 s when its caller disconnects from $name',
    async ({ number, script, load, tty }) => {
      const call = new ExecCall(client, {
        ...start(startShell(`echo up; ${script}`)),
        ...definedFields({ tty }),
      });
      load(call);
      // a terminal may echo typed text before the command runs
      await call.readUntil((text) => text.includes('up'));
      expect(listProcessesMentioning(String(number)).length).toBeGreaterThan(0);
      const startedMs = performance.now();
      call.cancelCall();
      await waitUntilGone(String(number));
      expect(performance.now() - startedMs).toBeLessThan(10_000);
    },
  );

  it('ends within 10 s when the coordinator is killed', async () => {
    const call = new ExecCall(client, start(startShell('echo up; sleep 40006')));
    await call.readUntil((text) => text === 'up\n');
    const startedMs = performance.now();
    await cluster.coordinatorProcess.kill('SIGKILL');
    while (listProcessesMentioning('40006').length > 0)
      await new Promise((resolve) => setImmediate(resolve));
    expect(performance.now() - startedMs).toBeLessThan(10_000);
    await cluster.startCoordinator();
    await cluster.waitUntilNodeReady('agent-1');
  });

  it('ends within 10 s when the agent is killed, and the call of the caller fails', async () => {
    const call = new ExecCall(client, start(startShell('echo up; sleep 40007')));
    await call.readUntil((text) => text === 'up\n');
    const startedMs = performance.now();
    await cluster.requireAgent('agent-1').kill('SIGKILL');
    await expect(call.readExitCode()).rejects.toThrow('agent-1');
    await waitUntilGone('40007');
    expect(performance.now() - startedMs).toBeLessThan(10_000);
    agentAddress = await cluster.startAgent('agent-1', 'zone-a');
    await cluster.waitUntilSettled('web');
    await cluster.waitUntilSettled('echo');
  });
});

describe('calls of one client to one node', () => {
  const listPids = (): number[] => [
    cluster.coordinatorProcess.pid,
    cluster.requireAgent('agent-1').pid,
  ];
  const [LOGS, EXECS, FORWARDS] = [11, 8, 8];

  /**
   * Opens as many commands and forwarded connections as one client may have, and log streams.
   * @returns A function that cancels all of them.
   */
  async function openAll(): Promise<() => void> {
    await cluster.waitForWorkload('echo', ({ status }) =>
      status!.replicas.some(({ ready, stale }) => ready && !stale),
    );
    const ending = new AbortController();
    const execs = Array.from(
      { length: EXECS },
      () => new ExecCall(client, start(startShell('echo up; sleep 40008'))),
    );
    const forwards = Array.from(
      { length: FORWARDS },
      () => new ForwardCall(client, { name: 'echo' }),
    );
    const logs = Array.from({ length: LOGS }, () =>
      client
        .streamLogs({ name: 'echo', follow: true, tailLines: 0 }, { signal: ending.signal })
        [Symbol.asyncIterator](),
    );
    await Promise.all([
      ...execs.map((call) => call.readUntil((text) => text === 'up\n')),
      ...forwards.map(async (call) =>
        expect(await call.readNext()).toMatchObject({ case: 'started' }),
      ),
      ...logs.map((stream) => stream.next()),
    ]);
    return () => {
      ending.abort();
      for (const stream of logs) void stream.next().catch(() => undefined);
      for (const call of [...execs, ...forwards]) call.cancelCall();
    };
  }

  it('are limited, leave capacity for other clients, and leak nothing when they are cancelled', async () => {
    const cancelAll = await openAll();
    const excess = new ExecCall(client, start(['true']));
    await expect(excess.readExitCode()).rejects.toThrow(
      'this client has 16 commands and forwarded connections of node "agent-1" open; close some first',
    );
    await expect(client.execCommand(start(['true']))).rejects.toMatchObject({ code: 8 });
    expect(await cluster.client.execCommand(start(['true']))).toMatchObject({ exitCode: 0 });
    cancelAll();
    await waitUntilGone('40008');
    await waitUntilIdle();
    const before = listPids().map(countOpenFiles);
    for (let round = 0; round < 3; round += 1) {
      const cancelRound = await openAll(); // succeeds only when all capacity is free again
      cancelRound();
      await waitUntilGone('40008');
    }
    await cancelInAllPhases();
    await waitUntilGone('40009');
    await waitUntilIdle();
    // a few connections may come and go during the test; a leak would be one connection per call
    const limits = before.map((count) => count + 4);
    const isClosing = (): boolean =>
      listPids().some((pid, index) => countOpenFiles(pid) > limits[index]!);
    for (let check = 0; check < MAX_CHECKS && isClosing(); check += 1)
      await client.listWorkloads({});
    listPids().forEach((pid, index) =>
      expect(countOpenFiles(pid)).toBeLessThanOrEqual(limits[index]!),
    );
  });

  /** Waits until agent and coordinator have released all cancelled calls. */
  async function waitUntilIdle(): Promise<void> {
    (await openAll())();
    await waitUntilGone('40008');
    await client.execCommand(start(['true']));
  }

  /**
   * Opens calls and cancels them before the first response, at the first response, during data and
   * just before the end.
   */
  async function cancelInAllPhases(): Promise<void> {
    for (let count = 0; count < 20; count += 1) {
      const early = new ExecCall(client, start(startShell('sleep 40009')));
      early.cancelCall();
      const started = new ExecCall(client, start(startShell('sleep 40009')));
      await started.readNext();
      started.cancelCall();
      const middle = new ExecCall(client, start(startShell('yes; : 40009')));
      await middle.readUntil((text) => text.length > 1_000);
      middle.cancelCall();
      const late = new ExecCall(client, start(['cat']));
      await late.readNext();
      late.endInput();
      late.cancelCall();
      const forward = new ForwardCall(client, { name: 'echo' });
      forward.sendText('x');
      if (count % 2 === 0) await forward.readNext();
      forward.cancelCall();
      const ending = new AbortController();
      const lines = client
        .streamLogs({ name: 'web', follow: true }, { signal: ending.signal })
        [Symbol.asyncIterator]();
      const line = lines.next().catch(() => undefined);
      ending.abort();
      await line;
    }
  }
});

function readResidentBytes(pid: number): number {
  return Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) * 1024;
}

function countOpenFiles(pid: number): number {
  return readdirSync(`/proc/${pid}/fd`).length;
}
