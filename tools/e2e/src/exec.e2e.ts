import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { createAgentClient, type CoordinatorClient } from '@cloudless/api';
import { createGrpcTransport } from '@connectrpc/connect-node';
import { QUICK, RealCluster } from './cluster.js';
import { ExecCall, ForwardCall } from './exec-call.js';
import { processesMentioning } from './processes.js';

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
  await cluster.settled('web');
  await cluster.settled('echo');
});
afterAll(() => cluster.stop());

const inShell = (script: string): string[] => ['/bin/sh', '-c', script];
const start = (command: string[]) => ({ name: 'web', command });
/** Number of calls after which resources of cancelled calls must have been released. */
const MAX_LOOKS = 2_000;

const untilGone = async (text: string): Promise<void> => {
  while (processesMentioning(text).length > 0) await client.listWorkloads({});
};

describe('Exec', () => {
  it('streams input and output, sets environment variables and returns the exit code', async () => {
    const call = new ExecCall(client, {
      ...start(inShell('echo $COLOUR $SIZE; echo oops >&2; cat; exit 3')),
      env: { SIZE: 'big' },
    });
    const [replica] = (await cluster.settled('web')).status!.replicas;
    expect(await call.next()).toMatchObject({
      case: 'started',
      value: { replicaId: replica!.id, containerId: replica!.containerId, nodeId: 'agent-1' },
    });
    call.type('one');
    await call.until((text) => text === 'blue big\none');
    call.type(' two');
    await call.until((text) => text.endsWith('one two'));
    call.end();
    expect(await call.exit()).toBe(3);
    expect(call.text).toEqual({ stdout: 'blue big\none two', stderr: 'oops\n' });
  });

  it('allocates a terminal that follows the window size', async () => {
    const call = new ExecCall(client, { ...start(['sh']), tty: { columns: 70, rows: 20 } });
    call.type('stty size; read x; stty size; exit 4\n');
    await call.until((text) => text.includes('20 70'));
    call.say({ case: 'resize', value: { columns: 90, rows: 33 } });
    call.type('\n');
    expect(await call.exit()).toBe(4);
    expect(call.text.stdout).toContain('33 90');
  });

  it('works on the port of the agent', async () => {
    const agent = createAgentClient(createGrpcTransport({ baseUrl: `http://${agentAddress}` }));
    const call = new ExecCall(agent, start(['cat']));
    call.type('direct');
    call.say({ case: 'stdinEnd', value: {} });
    expect(await call.exit()).toBe(0);
    expect(call.text.stdout).toBe('direct');
    const forward = new ForwardCall(agent, { name: 'echo' });
    expect(await forward.next()).toMatchObject({ case: 'started', value: { portName: 'echo' } });
    forward.send('hi');
    forward.end();
    expect(await forward.next()).toMatchObject({ case: 'data', value: Buffer.from('hi') });
    expect(await forward.next()).toMatchObject({ case: 'end' });
    expect(await forward.next()).toBeUndefined();
  });

  it('rejects a call whose first message is not the start message', async () => {
    const call = client.exec((async function* () {})());
    await expect(call[Symbol.asyncIterator]().next()).rejects.toThrow(
      'start: must be the first message',
    );
  });

  it('returns 127 for an unknown command with a message on stderr', async () => {
    const call = new ExecCall(client, start(['no-such-thing']));
    expect(await call.exit()).toBe(127);
    expect(call.text).toEqual({
      stdout: '',
      stderr: expect.stringContaining('no executable no-such-thing in PATH'),
    });
  });

  it('rejects a resize without a terminal, and an expired deadline', async () => {
    const sized = new ExecCall(client, start(['cat']));
    sized.say({ case: 'resize', value: { columns: 1, rows: 1 } });
    await expect(sized.exit()).rejects.toThrow('resize: the command has no terminal');
    const late = new ExecCall(client, {
      ...start(['sleep', '77']),
      timeout: { seconds: 0n, nanos: 200_000_000 },
    });
    await expect(late.exit()).rejects.toThrow('the command took longer than 200 ms');
  });

  it('blocks the command while the reader is slow, and loses no output', async () => {
    const done = join(cluster.directory, 'written');
    const bytes = 128 * 1024 * 1024;
    const memory = [cluster.coordinatorProcess.pid, cluster.agent('agent-1').pid].map(
      residentBytes,
    );
    const call = new ExecCall(client, start(inShell(`head -c ${bytes} /dev/zero; touch ${done}`)));
    await call.next();
    await call.next();
    for (let count = 0; count < 200; count += 1) await client.listWorkloads({});
    expect(existsSync(done)).toBe(false);
    const grown = [cluster.coordinatorProcess.pid, cluster.agent('agent-1').pid].map(residentBytes);
    grown.forEach((now, index) => expect(now - memory[index]!).toBeLessThan(bytes / 2));
    expect(await call.exit()).toBe(0);
    expect(call.bytes).toBe(bytes);
    expect(existsSync(done)).toBe(true);
  });
});

describe('command of a caller that disconnects', () => {
  const endless = (call: ExecCall): void => {
    for (let count = 0; count < 100; count += 1)
      call.say({ case: 'stdin', value: new Uint8Array(64 * 1024) });
  };
  it.each([
    { name: 'a silent command', number: 40_001, script: 'sleep 40001', load: () => undefined },
    {
      name: 'a command that does not read its input',
      number: 40_002,
      script: 'sleep 40002',
      load: endless,
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
      load: endless,
    },
    {
      name: 'a command with a terminal',
      number: 40_005,
      script: 'sleep 40005',
      tty: { columns: 80, rows: 24 },
      load: endless,
    },
  ])('ends within 10 s for $name', async ({ number, script, load, tty }) => {
    const call = new ExecCall(client, {
      ...start(inShell(`echo up; ${script}`)),
      ...(tty === undefined ? {} : { tty }),
    });
    load(call);
    // a terminal may echo typed text before the command runs
    await call.until((text) => text.includes('up'));
    expect(processesMentioning(String(number)).length).toBeGreaterThan(0);
    const began = performance.now();
    call.cut();
    await untilGone(String(number));
    expect(performance.now() - began).toBeLessThan(10_000);
  });

  it('ends within 10 s when the coordinator is killed', async () => {
    const call = new ExecCall(client, start(inShell('echo up; sleep 40006')));
    await call.until((text) => text === 'up\n');
    const began = performance.now();
    await cluster.coordinatorProcess.kill('SIGKILL');
    while (processesMentioning('40006').length > 0)
      await new Promise((resolve) => setImmediate(resolve));
    expect(performance.now() - began).toBeLessThan(10_000);
    await cluster.startCoordinator();
    await cluster.nodeReady('agent-1');
  });

  it('ends within 10 s when the agent is killed, and the call of the caller fails', async () => {
    const call = new ExecCall(client, start(inShell('echo up; sleep 40007')));
    await call.until((text) => text === 'up\n');
    const began = performance.now();
    await cluster.agent('agent-1').kill('SIGKILL');
    await expect(call.exit()).rejects.toThrow('agent-1');
    await untilGone('40007');
    expect(performance.now() - began).toBeLessThan(10_000);
    agentAddress = await cluster.startAgent('agent-1', 'zone-a');
    await cluster.settled('web');
    await cluster.settled('echo');
  });
});

describe('streams to one node', () => {
  const pids = (): number[] => [cluster.coordinatorProcess.pid, cluster.agent('agent-1').pid];
  const [LOGS, EXECS, FORWARDS] = [11, 8, 8];

  /**
   * Opens as many commands and connections as one client may have. @returns A function that closes
   * them.
   */
  async function fill(): Promise<() => void> {
    await cluster.until('echo', ({ status }) =>
      status!.replicas.some(({ ready, stale }) => ready && !stale),
    );
    const ending = new AbortController();
    const execs = Array.from(
      { length: EXECS },
      () => new ExecCall(client, start(inShell('echo up; sleep 40008'))),
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
      ...execs.map((call) => call.until((text) => text === 'up\n')),
      ...forwards.map(async (call) => expect(await call.next()).toMatchObject({ case: 'started' })),
      ...logs.map((stream) => stream.next()),
    ]);
    return () => {
      ending.abort();
      for (const stream of logs) void stream.next().catch(() => undefined);
      for (const call of [...execs, ...forwards]) call.cut();
    };
  }

  it('are limited for each client, leave capacity for other clients, and leak nothing when they are cancelled', async () => {
    const clear = await fill();
    const one = new ExecCall(client, start(['true']));
    await expect(one.exit()).rejects.toThrow(
      'this client has 16 commands and forwarded connections of node "agent-1" open; close some first',
    );
    await expect(client.execCommand(start(['true']))).rejects.toMatchObject({ code: 8 });
    expect(await cluster.client.execCommand(start(['true']))).toMatchObject({ exitCode: 0 });
    clear();
    await untilGone('40008');
    await rest();
    const before = pids().map(openFiles);
    for (let round = 0; round < 3; round += 1) {
      const again = await fill(); // all capacity is free again
      again();
      await untilGone('40008');
    }
    await cutInAllPhases();
    await untilGone('40009');
    await rest();
    // A few connections may come and go during the test; a leak would be one connection per call.
    const most = before.map((count) => count + 4);
    const isClosing = (): boolean => pids().some((pid, index) => openFiles(pid) > most[index]!);
    for (let look = 0; look < MAX_LOOKS && isClosing(); look += 1) await client.listWorkloads({});
    pids().forEach((pid, index) => expect(openFiles(pid)).toBeLessThanOrEqual(most[index]!));
  });

  /** Waits until both sides have released all cancelled calls. */
  async function rest(): Promise<void> {
    (await fill())();
    await untilGone('40008');
    await client.execCommand(start(['true']));
  }

  /**
   * Cancels calls before the first response, at the first response, during data and just before the
   * end.
   */
  async function cutInAllPhases(): Promise<void> {
    for (let count = 0; count < 20; count += 1) {
      const early = new ExecCall(client, start(inShell('sleep 40009')));
      early.cut();
      const started = new ExecCall(client, start(inShell('sleep 40009')));
      await started.next();
      started.cut();
      const middle = new ExecCall(client, start(inShell('yes; : 40009')));
      await middle.until((text) => text.length > 1_000);
      middle.cut();
      const late = new ExecCall(client, start(['cat']));
      await late.next();
      late.end();
      late.cut();
      const forward = new ForwardCall(client, { name: 'echo' });
      forward.send('x');
      if (count % 2 === 0) await forward.next();
      forward.cut();
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

function residentBytes(pid: number): number {
  return Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) * 1024;
}

function openFiles(pid: number): number {
  return readdirSync(`/proc/${pid}/fd`).length;
}
