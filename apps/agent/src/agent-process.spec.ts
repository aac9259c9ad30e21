import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { create } from '@bufbuild/protobuf';
import { afterAll, beforeAll, describe, expect, it, jest } from '@jest/globals';
import { createGrpcTransport } from '@connectrpc/connect-node';
import {
  Condition_Type,
  createAgentClient,
  ExecCommandRequestSchema,
  GetContainerStatusRequestSchema,
  OrderSchema,
  ReplicaStatus_Phase,
  StartOrderSchema,
  StreamLogsRequestSchema,
  WorkloadSpecSchema,
  type Condition,
  type Order,
  type ReplicaReport,
} from '@cloudless/api';
import { findLockHolder } from '@cloudless/app-kit/background';
import { RUNTIME_FOLDER } from './runtimes/agent-runtimes.js';
import { AgentProcess } from './testing/agent-process.js';
import { FakeCoordinatorServer } from './testing/fake-coordinator-server.js';

jest.setTimeout(60_000);

const REPLICA = '0123456789abcdef-1';
/** Writes a line to stdout and serves its port. */
const SERVER = `console.log('hello from', process.pid); require('node:net').createServer((s) => s.end('hi')).listen(process.env.PORT, '127.0.0.1')`;

const order = (content: Order['order'], revision: bigint): Order =>
  create(OrderSchema, {
    epoch: 1n,
    orderRevision: revision,
    replicaId: REPLICA,
    workloadUid: '0123456789abcdef',
    order: content,
  });

const startOrder = (): Order =>
  order(
    {
      case: 'start',
      value: create(StartOrderSchema, {
        namespace: 'default',
        workload: 'web',
        version: 1,
        spec: create(WorkloadSpecSchema, {
          command: [process.execPath, '-e', SERVER],
          ports: [{ name: 'http', containerPort: 8080 }],
        }),
      }),
    },
    1n,
  );
const STOP_WAITS = 'the stop waits for the supervisor of the processes, which does not answer';

describe('cloudless-agent with the process runtime', () => {
  const coordinator = new FakeCoordinatorServer();
  let dataDir: string;
  let agent: AgentProcess;
  let address = '';
  let agentPid = '';
  let statusTunnels = 0;

  const createArguments = (): readonly string[] => [
    ...[
      'run',
      '--name',
      'agent-1',
      '--coordinator',
      coordinator.url,
      '--data-dir',
      join(dataDir, 'agent'),
    ],
    ...['--listen', '127.0.0.1:0', '--runtime', 'process', '--stop-workloads-on-exit'],
  ];
  const startAgent = async (): Promise<void> => {
    agent = new AgentProcess(...createArguments());
    const ready = await agent.waitForLog('agent started, connecting to coordinators');
    address = String(ready['address']);
    agentPid = String(ready['pid']);
  };
  const requireReport = (): ReplicaReport => {
    const found = coordinator.reports.get(REPLICA);
    if (found === undefined) throw new Error('nothing reported');
    return found;
  };
  /** @throws when no supervisor runs: a signal to process 0 would reach this test itself. */
  const requireSupervisor = (): number => {
    const pid = findLockHolder(join(dataDir, 'agent', RUNTIME_FOLDER));
    if (pid === undefined) throw new Error('no supervisor runs');
    return pid;
  };
  const findProcessCondition = (): Condition | undefined =>
    coordinator.conditions.find(({ type }) => type === Condition_Type.PROCESS_RUNTIME_UNAVAILABLE);
  const isReady = (): boolean => coordinator.reports.get(REPLICA)?.ready === true;
  const readPid = async (): Promise<number> => {
    const target = {
      case: 'status',
      value: create(GetContainerStatusRequestSchema, { containerId: requireReport().containerId }),
    } as const;
    // A new id for each tunnel: an id that was used before gives the frames of the old tunnel.
    const [frame] = await coordinator.openTunnel(`status-${(statusTunnels += 1)}`, target);
    if (frame?.case !== 'status') throw new Error(`no status: ${JSON.stringify(frame)}`);
    return frame.value.pid;
  };

  beforeAll(async () => {
    dataDir = await mkdtemp(join(tmpdir(), 'agent-'));
    await coordinator.listen();
    await startAgent();
    await coordinator.waitUntil(() => coordinator.sessions === 1);
  });

  afterAll(async () => {
    await agent.end('SIGTERM');
    await coordinator.close();
    await rm(dataDir, { recursive: true, force: true });
  });

  it('starts a replica, sends pings, and reports ready when the port accepts connections', async () => {
    coordinator.sendOrder(startOrder());
    await coordinator.waitUntil(isReady);
    expect(requireReport()).toMatchObject({
      phase: ReplicaStatus_Phase.RUNNING,
      restarts: 0,
      orderRevision: 1n,
      endpoints: [{ portName: 'http' }],
    });
    const { pings } = coordinator;
    await coordinator.waitUntil(() => coordinator.pings > pings);
  });

  it('lowers its own out-of-memory score where permitted, but not the score of its workloads', async () => {
    const scoreOf = async (process: string): Promise<number> =>
      // 0 where there is no /proc, such as on macOS
      Number(await readFile(`/proc/${process}/oom_score_adj`, 'utf8').catch(() => '0'));
    const own = await scoreOf('self');
    expect([Math.min(own, -900), own]).toContain(await scoreOf(agentPid));
    expect(await scoreOf(String(await readPid()))).toBeGreaterThanOrEqual(0);
  });

  it('restarts the process of a replica in a new container when the process is killed', async () => {
    const before = requireReport().containerId;
    process.kill(await readPid(), 'SIGKILL');
    await coordinator.waitUntil(() => requireReport().restarts === 1 && isReady());
    expect(requireReport().containerId).not.toBe(before);
    expect(requireReport()).toMatchObject({ lastExitCode: 137, earlierContainerIds: [before] });
  });

  it('adopts a running process without a restart after the agent was killed', async () => {
    const { containerId } = requireReport();
    const running = await readPid();
    await agent.end('SIGKILL');
    await startAgent();
    await coordinator.waitUntil(() => coordinator.sessions === 2);
    expect(coordinator.inventory).toMatchObject([
      { replicaId: REPLICA, containerId, restarts: 1, ready: true, orderRevision: 1n },
    ]);
    expect(await readPid()).toBe(running);
  });

  it('starts beside a supervisor that is stopped by SIGSTOP, reports the supervisor, and adopts its process', async () => {
    const running = await readPid();
    const supervisor = requireSupervisor();
    await agent.end('SIGKILL');
    process.kill(supervisor, 'SIGSTOP');
    try {
      await startAgent();
      await coordinator.waitUntil(() => findProcessCondition()?.status === true);
      expect(findProcessCondition()?.reason).toContain(`run kill -9 ${supervisor} on the machine`);
      expect(coordinator.capabilities).toContain('runtime.process'); // its processes stay
      expect(requireReport()).toMatchObject({ phase: ReplicaStatus_Phase.RUNNING, ready: false });
    } finally {
      process.kill(supervisor, 'SIGCONT');
    }
    await coordinator.waitUntil(isReady);
    await coordinator.waitUntil(() => findProcessCondition()?.status === false);
    expect(requireReport()).toMatchObject({ restarts: 1 });
    expect(await readPid()).toBe(running);
  });

  it('ends with an error that says what to do when it cannot stop its processes, which run on', async () => {
    const running = await readPid();
    const supervisor = requireSupervisor();
    process.kill(supervisor, 'SIGSTOP');
    try {
      await coordinator.waitUntil(() => findProcessCondition()?.status === true);
      expect(await agent.end('SIGTERM')).toBe(1);
    } finally {
      process.kill(supervisor, 'SIGCONT');
    }
    expect(agent.stderr.join('\n')).toContain(
      `the processes of this node were not stopped and run on, because the supervisor of the processes (process ${supervisor}) does not answer: run kill -9 ${supervisor} on the machine, then start the agent and stop it again`,
    );
    expect(agent.lines).not.toContainEqual(expect.objectContaining({ message: STOP_WAITS }));
    expect(coordinator.goodbyes).toBe(1);
    const { sessions } = coordinator;
    await startAgent();
    await coordinator.waitUntil(() => coordinator.sessions > sessions && isReady());
    expect(requireReport()).toMatchObject({ restarts: 1 });
    expect(await readPid()).toBe(running);
  });

  it('rejects a second agent and a reset on the data directory of a running agent', async () => {
    const second = new AgentProcess(...createArguments());
    expect(await second.waitForExit()).toBe(1);
    expect(second.stderr.join('\n')).toMatch(
      /data directory .*agent is in use by another agent, process \d+/,
    );
    const reset = new AgentProcess('reset', '--data-dir', join(dataDir, 'agent'));
    expect(await reset.waitForExit()).toBe(1);
  });

  it('serves logs of all containers of a replica, commands and container states at its own address', async () => {
    const client = createAgentClient(createGrpcTransport({ baseUrl: `http://${address}` }));
    const lines = [];
    for await (const entry of client.streamLogs({ namespace: 'default', name: 'web' }))
      lines.push(entry.line.split(' ').slice(0, 2).join(' '));
    expect(lines).toEqual(['hello from', 'hello from']);
    const { stdout, exitCode } = await client.execCommand({
      replicaId: REPLICA,
      command: ['/bin/sh', '-c', 'echo $PORT; exit 3'],
    });
    expect({ stdout, exitCode }).toEqual({
      stdout: `${requireReport().endpoints[0]?.port}\n`,
      exitCode: 3,
    });
    await expect(client.getContainerStatus({ containerId: 'f'.repeat(64) })).rejects.toThrow(
      'container "ffffffffffff…" is not on node agent-1',
    );
    const { containers } = await client.listContainers({});
    expect(containers).toHaveLength(2);
  });

  it('serves logs and commands through tunnels', async () => {
    const exec = create(ExecCommandRequestSchema, {
      containerId: requireReport().containerId,
      command: ['/bin/echo', 'through'],
    });
    expect(await coordinator.openTunnel('exec', { case: 'exec', value: exec })).toMatchObject([
      { case: 'exec', value: { stdout: 'through\n', exitCode: 0 } },
      { case: 'end' },
    ]);
    const logs = create(StreamLogsRequestSchema, { containerId: requireReport().containerId });
    expect(await coordinator.openTunnel('logs', { case: 'logs', value: logs })).toMatchObject([
      { case: 'log', value: { sequence: 1n } },
      { case: 'end' },
    ]);
    const missing = create(GetContainerStatusRequestSchema, { containerId: 'e'.repeat(64) });
    expect(
      await coordinator.openTunnel('missing', { case: 'status', value: missing }),
    ).toMatchObject([{ case: 'error', value: { code: 5 } }]);
  });

  it('sends Goodbye on SIGTERM and stops workloads with --stop-workloads-on-exit', async () => {
    const running = await readPid();
    expect(await agent.end('SIGTERM')).toBe(0);
    expect(coordinator.goodbyes).toBe(2);
    expect(() => process.kill(running, 0)).toThrow('ESRCH');
    const reset = new AgentProcess('reset', '--data-dir', join(dataDir, 'agent'));
    expect(await reset.waitForExit()).toBe(0);
    const { sessions } = coordinator;
    await startAgent();
    await coordinator.waitUntil(() => coordinator.sessions > sessions);
    expect(coordinator.inventory).toEqual([]);
  });

  it('says that its stop waits for a supervisor that has just been stopped by SIGSTOP', async () => {
    const supervisor = requireSupervisor();
    process.kill(supervisor, 'SIGSTOP');
    const exit = agent.end('SIGTERM');
    try {
      expect(await agent.waitForLog(STOP_WAITS)).toMatchObject({
        remedy: expect.stringContaining(`run kill -9 ${supervisor} on the machine`),
      });
    } finally {
      process.kill(supervisor, 'SIGCONT');
    }
    expect(await exit).toBe(0);
  });
});
