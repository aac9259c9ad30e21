import { CloudlessError, toContainerId, type StopSignal } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import { PushQueue, type ContainerEvent, type ContainerRequest } from '@cloudless/runtime';
import type { FakeRuntime } from '@cloudless/runtime/testing';
import { CONTAINER_LABELS } from '../index.js';
import { aForgetOrder, aStartOrder, aStopOrder, AgentTestBed } from '../testing/index.js';

async function createRunningTestBed(): Promise<AgentTestBed> {
  const testBed = new AgentTestBed();
  await testBed.start();
  testBed.coordinator.sendOrder(aStartOrder());
  await settle();
  return testBed;
}

const idOf = (testBed: AgentTestBed) => toContainerId(testBed.requireReport().containerId);

describe('Agent after a restart of the agent', () => {
  it('adopts a running container without a restart, and the replica stays ready', async () => {
    const testBed = await createRunningTestBed();
    testBed.machine.exit(idOf(testBed), 1);
    await testBed.clock.advance(200);
    const before = idOf(testBed);
    testBed.coordinator.reportHistory.length = 0;
    await testBed.restart();
    expect(testBed.coordinator.reportHistory).toMatchObject([
      { containerId: before, restarts: 1, ready: true, orderRevision: 10n },
    ]);
    expect(testBed.machine.startCount).toBe(2);
  });

  it('checks readiness again when the container was not ready before the restart', async () => {
    const testBed = new AgentTestBed();
    testBed.closedPorts.add('*');
    await testBed.start();
    testBed.coordinator.sendOrder(
      aStartOrder({ spec: { ports: [{ name: 'http', containerPort: 80 }] } }),
    );
    await testBed.clock.advance(100);
    await testBed.restart();
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: false });
    testBed.closedPorts.clear();
    await testBed.clock.advance(300);
    expect(testBed.summarizeReport()).toMatchObject({ ready: true });
  });

  it('applies the restart policy to an exit that happened while no agent ran', async () => {
    const testBed = await createRunningTestBed();
    await testBed.kill();
    const [container] = await testBed.runtime.list();
    testBed.machine.exit(toContainerId(container?.containerId ?? ''), 4);
    await testBed.start();
    expect(testBed.summarizeReport()).toEqual({
      phase: 'RUNNING',
      ready: false,
      restarts: 1,
      reason: 'exit code 4, restarting in 100 ms',
    });
    await testBed.clock.advance(100);
    expect(testBed.summarizeReport()).toMatchObject({ ready: true, restarts: 1 });
    expect(testBed.requireReport().lastExitCode).toBe(4);
  });

  it('does not handle an exit again that the previous agent has handled', async () => {
    const testBed = await createRunningTestBed();
    testBed.machine.exit(idOf(testBed), 4);
    await settle();
    await testBed.restart();
    expect(testBed.summarizeReport()).toMatchObject({
      restarts: 1,
      reason: 'exit code 4, restarting in 100 ms',
    });
    await testBed.clock.advance(100);
    expect(testBed.summarizeReport()).toMatchObject({ ready: true, restarts: 1 });
  });

  it('starts a replica again when the runtime no longer has its container', async () => {
    const testBed = await createRunningTestBed();
    await testBed.kill();
    testBed.machine.removeSilently();
    await testBed.start();
    await testBed.clock.advance(100);
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: true });
  });

  it('runs and restarts replicas without any coordinator', async () => {
    const testBed = await createRunningTestBed();
    await testBed.kill();
    testBed.coordinator.reachable = false;
    const agent = await testBed.start();
    const [first] = await testBed.runtime.list();
    testBed.machine.exit(toContainerId(first?.containerId ?? ''), 1);
    await testBed.clock.advance(60_000);
    expect((await testBed.runtime.list()).filter(({ phase }) => phase === 'running')).toHaveLength(
      1,
    );
    expect(agent.connected).toBe(false);
    testBed.coordinator.reachable = true;
    await testBed.clock.advance(1_000);
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: true, restarts: 1 });
  });

  it('continues the stop that the previous agent had begun', async () => {
    const testBed = await createRunningTestBed();
    testBed.coordinator.sendOrder(aStopOrder({ preStopMs: 60_000 }));
    await settle();
    await testBed.restart();
    await testBed.clock.advance(10_000);
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'STOPPED' });
    await testBed.restart();
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'STOPPED' });
    expect(testBed.machine.startCount).toBe(1);
  });

  it('continues the forget order that the previous agent had begun', async () => {
    const testBed = await createRunningTestBed();
    testBed.coordinator.sendOrder(aStopOrder({ preStopMs: 60_000 }));
    testBed.coordinator.sendOrder(aForgetOrder());
    await settle();
    await testBed.restart();
    await testBed.clock.advance(10_000);
    expect(testBed.store.replicas.size).toBe(0);
    expect(await testBed.runtime.list()).toEqual([]);
  });

  it('does not start an ended replica again', async () => {
    const testBed = await createRunningTestBed();
    testBed.coordinator.sendOrder(aStopOrder());
    await settle();
    await testBed.restart();
    await testBed.clock.advance(600_000);
    expect(testBed.machine.startCount).toBe(1);
  });

  it('adopts an orphan, reports the data of its labels and keeps it running', async () => {
    const testBed = await createRunningTestBed();
    await testBed.kill();
    testBed.store.replicas.clear();
    testBed.coordinator.reports.clear();
    await testBed.start();
    await testBed.clock.advance(60_000);
    expect(testBed.requireReport()).toMatchObject({
      orderRevision: 10n,
      workloadUid: 'web',
      restarts: 0,
      ready: true,
    });
    expect(testBed.summarizeReport()?.phase).toBe('RUNNING');
    testBed.coordinator.sendOrder(aStartOrder()); // an order with the same revision
    await settle();
    testBed.machine.exit(idOf(testBed), 1);
    await testBed.clock.advance(100);
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: true, restarts: 1 });
  });

  it('stops an orphan when a stop order arrives', async () => {
    const testBed = await createRunningTestBed();
    await testBed.kill();
    testBed.store.replicas.clear();
    await testBed.start();
    testBed.coordinator.sendOrder(aStopOrder());
    await settle();
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'STOPPED' });
    expect((await testBed.runtime.list()).map(({ phase }) => phase)).toEqual(['exited']);
  });

  it('ignores containers of another node or cluster', async () => {
    const testBed = new AgentTestBed();
    const labels = {
      [CONTAINER_LABELS.cluster]: 'cluster-1',
      [CONTAINER_LABELS.node]: 'node-2',
      [CONTAINER_LABELS.replica]: 'x-1',
      [CONTAINER_LABELS.orderRevision]: '1',
    };
    await testBed.runtime.start({
      containerId: toContainerId('a'.repeat(64)),
      labels,
      command: ['server'],
      args: [],
      env: {},
      ports: [],
      limits: {},
    });
    await testBed.start();
    await testBed.restart();
    expect(testBed.coordinator.reports.size).toBe(0);
    await testBed.stop({ stopWorkloads: true });
    expect((await testBed.runtime.list()).map(({ phase }) => phase)).toEqual(['running']);
  });

  it('stops the older container when a replica has two running containers', async () => {
    const testBed = await createRunningTestBed();
    await testBed.kill();
    const [first] = await testBed.runtime.list();
    await testBed.clock.advance(10);
    await testBed.runtime.start({
      containerId: toContainerId('b'.repeat(64)),
      labels: first?.labels ?? {},
      command: ['server'],
      args: [],
      env: {},
      ports: [],
      limits: {},
    });
    await testBed.start();
    const running = (await testBed.runtime.list()).filter(({ phase }) => phase === 'running');
    expect(running.map(({ containerId }) => containerId)).toEqual(['b'.repeat(64)]);
    expect(testBed.requireReport().containerId).toBe('b'.repeat(64));
  });

  it('rejects the data directory of another node', async () => {
    const testBed = await createRunningTestBed();
    await testBed.kill();
    testBed.store.identity = { nodeId: 'node-9', instanceId: 'x', highestEpoch: 0n };
    await expect(testBed.start()).rejects.toMatchObject({
      kind: 'precondition',
      message: expect.stringContaining('belongs to node node-9'),
    });
  });
});

describe('Agent after a reboot of the machine', () => {
  async function createRebootedTestBed(): Promise<AgentTestBed> {
    const testBed = await createRunningTestBed();
    await testBed.kill();
    testBed.machine.reboot();
    testBed.bootId = 'boot-2';
    return testBed;
  }

  it('starts a replica only after the coordinator has repeated the order, and reports why it waits', async () => {
    const testBed = await createRebootedTestBed();
    await testBed.start();
    await testBed.clock.advance(60_000);
    expect(testBed.machine.startCount).toBe(1);
    expect(testBed.summarizeReport()).toEqual({
      phase: 'RUNNING',
      ready: false,
      restarts: 0,
      reason: 'the machine was rebooted; waiting for the coordinator to repeat the order',
    });
    expect(testBed.requireReport().orderRevision).toBe(0n);
    testBed.coordinator.sendOrder(aStartOrder());
    await testBed.clock.advance(100);
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: true, restarts: 1 });
    expect(testBed.requireReport()).toMatchObject({ orderRevision: 10n, lastExitCode: -1 });
  });

  it('starts no replica after a second restart of the agent', async () => {
    const testBed = await createRebootedTestBed();
    await testBed.start();
    await testBed.restart();
    await testBed.clock.advance(60_000);
    expect(testBed.machine.startCount).toBe(1);
  });

  it('never starts a replica when a stop order arrives instead of the repeated start order', async () => {
    const testBed = await createRebootedTestBed();
    await testBed.start();
    testBed.coordinator.sendOrder(aStopOrder());
    await testBed.clock.advance(60_000);
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'STOPPED' });
    expect(testBed.machine.startCount).toBe(1);
  });
});

describe('Agent while its runtime is unavailable', () => {
  /** Wraps a runtime so that a test can break its events and lose its answers to starts. */
  function withBreakableConnection(runtime: FakeRuntime) {
    let cut = (): void => undefined;
    const connection = {
      losesAnswers: false,
      cut: () => cut(),
      runtime: Object.assign(Object.create(runtime) as FakeRuntime, {
        events: (signal: StopSignal) => {
          const queue = new PushQueue<ContainerEvent>({ limit: 100, signal });
          const unlisten = runtime.machine.subscribe((event) => queue.push(event));
          cut = () => {
            unlisten();
            queue.fail(new CloudlessError('unavailable', 'the supervisor went away'));
          };
          return queue;
        },
        start: async (request: ContainerRequest) => {
          const status = await runtime.start(request);
          if (connection.losesAnswers)
            throw new CloudlessError('unavailable', 'the answer was lost');
          return status;
        },
      }),
    };
    return connection;
  }

  async function createBreakableTestBed() {
    const testBed = new AgentTestBed();
    const connection = withBreakableConnection(testBed.runtime);
    testBed.runtime = connection.runtime;
    await testBed.start();
    testBed.coordinator.sendOrder(aStartOrder());
    await settle();
    return { testBed, connection };
  }

  it.each([
    {
      name: 'an exit',
      cause: (testBed: AgentTestBed) => testBed.machine.exit(idOf(testBed), 9),
      lastExitCode: 9,
    },
    {
      name: 'the loss of a container',
      cause: (testBed: AgentTestBed) => testBed.machine.removeSilently(idOf(testBed)),
      lastExitCode: undefined,
    },
  ])(
    'handles $name that it missed, once the runtime answers again',
    async ({ cause, lastExitCode }) => {
      const { testBed, connection } = await createBreakableTestBed();
      connection.cut();
      cause(testBed);
      await testBed.clock.advance(1_000);
      expect(testBed.summarizeReport()).toMatchObject({
        phase: 'RUNNING',
        ready: true,
        restarts: 1,
      });
      expect(testBed.requireReport().lastExitCode).toBe(lastExitCode);
    },
  );

  it('finds a container whose start was not answered, and starts no second container', async () => {
    const { testBed, connection } = await createBreakableTestBed();
    connection.losesAnswers = true;
    connection.cut(); // no event reports the container either
    testBed.coordinator.sendOrder(aStartOrder({ replicaId: 'web-2' }));
    await settle();
    connection.losesAnswers = false;
    await testBed.clock.advance(1_000);
    expect(testBed.summarizeReport('web-2')).toMatchObject({
      phase: 'RUNNING',
      ready: true,
      restarts: 0,
    });
    expect(testBed.machine.startCount).toBe(2);
  });

  it('stops a container whose start was not answered', async () => {
    const { testBed, connection } = await createBreakableTestBed();
    connection.losesAnswers = true;
    connection.cut();
    testBed.coordinator.sendOrder(aStartOrder({ replicaId: 'web-2' }));
    testBed.coordinator.sendOrder(aStopOrder({ replicaId: 'web-2', graceMs: 0 }));
    await testBed.clock.advance(1_000);
    expect(testBed.summarizeReport('web-2')).toMatchObject({ phase: 'STOPPED' });
    expect((await testBed.runtime.list()).filter(({ phase }) => phase === 'running')).toHaveLength(
      1,
    );
  });
});
