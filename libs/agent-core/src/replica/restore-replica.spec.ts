import { CloudlessError, toContainerId, type StopSignal } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import { PushQueue, type ContainerEvent, type ContainerRequest } from '@cloudless/runtime';
import type { FakeRuntime } from '@cloudless/runtime/testing';
import { CONTAINER_LABELS } from '../index.js';
import { aForgetOrder, aStartOrder, aStopOrder, AgentTestBed } from '../testing/index.js';

async function aRunningWorld(): Promise<AgentTestBed> {
  const world = new AgentTestBed();
  await world.start();
  world.coordinator.sendOrder(aStartOrder());
  await settle();
  return world;
}

const idOf = (world: AgentTestBed) => toContainerId(world.requireReport().containerId);

describe('Agent after a restart of the agent', () => {
  it('adopts a running container without a restart, still ready', async () => {
    const world = await aRunningWorld();
    world.machine.exit(idOf(world), 1);
    await world.clock.advance(200);
    const before = idOf(world);
    world.coordinator.reportHistory.length = 0;
    await world.restart();
    expect(world.coordinator.reportHistory).toMatchObject([
      { containerId: before, restarts: 1, ready: true, orderRevision: 10n },
    ]);
    expect(world.machine.startCount).toBe(2);
  });

  it('checks readiness again when the container was not ready before', async () => {
    const world = new AgentTestBed();
    world.closedPorts.add('*');
    await world.start();
    world.coordinator.sendOrder(
      aStartOrder({ spec: { ports: [{ name: 'http', containerPort: 80 }] } }),
    );
    await world.clock.advance(100);
    await world.restart();
    expect(world.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: false });
    world.closedPorts.clear();
    await world.clock.advance(300);
    expect(world.summarizeReport()).toMatchObject({ ready: true });
  });

  it('applies the restart policy to an exit that happened meanwhile', async () => {
    const world = await aRunningWorld();
    await world.kill();
    const [container] = await world.runtime.list();
    world.machine.exit(toContainerId(container?.containerId ?? ''), 4);
    await world.start();
    expect(world.summarizeReport()).toEqual({
      phase: 'RUNNING',
      ready: false,
      restarts: 1,
      reason: 'exit code 4, restarting in 100 ms',
    });
    await world.clock.advance(100);
    expect(world.summarizeReport()).toMatchObject({ ready: true, restarts: 1 });
    expect(world.requireReport().lastExitCode).toBe(4);
  });

  it('does not handle an exit twice', async () => {
    const world = await aRunningWorld();
    world.machine.exit(idOf(world), 4);
    await settle();
    await world.restart();
    expect(world.summarizeReport()).toMatchObject({
      restarts: 1,
      reason: 'exit code 4, restarting in 100 ms',
    });
    await world.clock.advance(100);
    expect(world.summarizeReport()).toMatchObject({ ready: true, restarts: 1 });
  });

  it('starts a replica whose order was stored but whose container was not started', async () => {
    const world = await aRunningWorld();
    await world.kill();
    world.machine.removeSilently();
    await world.start();
    await world.clock.advance(100);
    expect(world.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: true });
  });

  it('runs and restarts replicas without any coordinator', async () => {
    const world = await aRunningWorld();
    await world.kill();
    world.coordinator.reachable = false;
    const agent = await world.start();
    const [first] = await world.runtime.list();
    world.machine.exit(toContainerId(first?.containerId ?? ''), 1);
    await world.clock.advance(60_000);
    expect((await world.runtime.list()).filter(({ phase }) => phase === 'running')).toHaveLength(1);
    expect(agent.connected).toBe(false);
    world.coordinator.reachable = true;
    await world.clock.advance(1_000);
    expect(world.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: true, restarts: 1 });
  });

  it('continues a stop that had begun', async () => {
    const world = await aRunningWorld();
    world.coordinator.sendOrder(aStopOrder({ preStopMs: 60_000 }));
    await settle();
    await world.restart();
    await world.clock.advance(10_000);
    expect(world.summarizeReport()).toMatchObject({ phase: 'STOPPED' });
    await world.restart();
    expect(world.summarizeReport()).toMatchObject({ phase: 'STOPPED' });
    expect(world.machine.startCount).toBe(1);
  });

  it('continues a forget order that had begun', async () => {
    const world = await aRunningWorld();
    world.coordinator.sendOrder(aStopOrder({ preStopMs: 60_000 }));
    world.coordinator.sendOrder(aForgetOrder());
    await settle();
    await world.restart();
    await world.clock.advance(10_000);
    expect(world.store.replicas.size).toBe(0);
    expect(await world.runtime.list()).toEqual([]);
  });

  it('does not start an ended replica again', async () => {
    const world = await aRunningWorld();
    world.coordinator.sendOrder(aStopOrder());
    await settle();
    await world.restart();
    await world.clock.advance(600_000);
    expect(world.machine.startCount).toBe(1);
  });

  it('adopts orphans, reports them with the data of their labels and keeps them running', async () => {
    const world = await aRunningWorld();
    await world.kill();
    world.store.replicas.clear();
    world.coordinator.reports.clear();
    await world.start();
    await world.clock.advance(60_000);
    expect(world.requireReport()).toMatchObject({
      orderRevision: 10n,
      workloadUid: 'web',
      restarts: 0,
      ready: true,
    });
    expect(world.summarizeReport()?.phase).toBe('RUNNING');
    world.coordinator.sendOrder(aStartOrder()); // an order with the same revision
    await settle();
    world.machine.exit(idOf(world), 1);
    await world.clock.advance(100);
    expect(world.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: true, restarts: 1 });
  });

  it('stops an orphan when ordered to', async () => {
    const world = await aRunningWorld();
    await world.kill();
    world.store.replicas.clear();
    await world.start();
    world.coordinator.sendOrder(aStopOrder());
    await settle();
    expect(world.summarizeReport()).toMatchObject({ phase: 'STOPPED' });
    expect((await world.runtime.list()).map(({ phase }) => phase)).toEqual(['exited']);
  });

  it('ignores containers of another node or cluster', async () => {
    const world = new AgentTestBed();
    const labels = {
      [CONTAINER_LABELS.cluster]: 'cluster-1',
      [CONTAINER_LABELS.node]: 'node-2',
      [CONTAINER_LABELS.replica]: 'x-1',
      [CONTAINER_LABELS.orderRevision]: '1',
    };
    await world.runtime.start({
      containerId: toContainerId('a'.repeat(64)),
      labels,
      command: ['server'],
      args: [],
      env: {},
      ports: [],
      limits: {},
    });
    await world.start();
    await world.restart();
    expect(world.coordinator.reports.size).toBe(0);
    await world.stop({ stopWorkloads: true });
    expect((await world.runtime.list()).map(({ phase }) => phase)).toEqual(['running']);
  });

  it('stops all but the newest container when a replica has two', async () => {
    const world = await aRunningWorld();
    await world.kill();
    const [first] = await world.runtime.list();
    await world.clock.advance(10);
    await world.runtime.start({
      containerId: toContainerId('b'.repeat(64)),
      labels: first?.labels ?? {},
      command: ['server'],
      args: [],
      env: {},
      ports: [],
      limits: {},
    });
    await world.start();
    const running = (await world.runtime.list()).filter(({ phase }) => phase === 'running');
    expect(running.map(({ containerId }) => containerId)).toEqual(['b'.repeat(64)]);
    expect(world.requireReport().containerId).toBe('b'.repeat(64));
  });

  it('rejects the data directory of another node', async () => {
    const world = await aRunningWorld();
    await world.kill();
    world.store.identity = { nodeId: 'node-9', instanceId: 'x', highestEpoch: 0n };
    await expect(world.start()).rejects.toMatchObject({
      kind: 'precondition',
      message: expect.stringContaining('belongs to node node-9'),
    });
  });
});

describe('Agent after a reboot of the machine', () => {
  async function aRebootedWorld(): Promise<AgentTestBed> {
    const world = await aRunningWorld();
    await world.kill();
    world.machine.reboot();
    world.bootId = 'boot-2';
    return world;
  }

  it('waits for the coordinator to repeat an order before it starts a replica, and reports so', async () => {
    const world = await aRebootedWorld();
    await world.start();
    await world.clock.advance(60_000);
    expect(world.machine.startCount).toBe(1);
    expect(world.summarizeReport()).toEqual({
      phase: 'RUNNING',
      ready: false,
      restarts: 0,
      reason: 'the machine was rebooted; waiting for the coordinator to repeat the order',
    });
    expect(world.requireReport().orderRevision).toBe(0n);
    world.coordinator.sendOrder(aStartOrder());
    await world.clock.advance(100);
    expect(world.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: true, restarts: 1 });
    expect(world.requireReport()).toMatchObject({ orderRevision: 10n, lastExitCode: -1 });
  });

  it('keeps waiting after a second restart of the agent', async () => {
    const world = await aRebootedWorld();
    await world.start();
    await world.restart();
    await world.clock.advance(60_000);
    expect(world.machine.startCount).toBe(1);
  });

  it('never starts a replica that was replaced elsewhere', async () => {
    const world = await aRebootedWorld();
    await world.start();
    world.coordinator.sendOrder(aStopOrder());
    await world.clock.advance(60_000);
    expect(world.summarizeReport()).toMatchObject({ phase: 'STOPPED' });
    expect(world.machine.startCount).toBe(1);
  });
});

describe('Agent while its runtime is unavailable', () => {
  /** A runtime whose connection can break. */
  function breakable(runtime: FakeRuntime) {
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

  async function aBreakableWorld() {
    const world = new AgentTestBed();
    const connection = breakable(world.runtime);
    world.runtime = connection.runtime;
    await world.start();
    world.coordinator.sendOrder(aStartOrder());
    await settle();
    return { world, connection };
  }

  it.each([
    {
      name: 'an exit',
      happen: (world: AgentTestBed) => world.machine.exit(idOf(world), 9),
      lastExitCode: 9,
    },
    {
      name: 'the loss of a container',
      happen: (world: AgentTestBed) => world.machine.removeSilently(idOf(world)),
      lastExitCode: undefined,
    },
  ])(
    'lists containers again and handles $name that it missed',
    async ({ happen, lastExitCode }) => {
      const { world, connection } = await aBreakableWorld();
      connection.cut();
      happen(world);
      await world.clock.advance(1_000);
      expect(world.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: true, restarts: 1 });
      expect(world.requireReport().lastExitCode).toBe(lastExitCode);
    },
  );

  it('finds a container whose start was not answered and starts no second one', async () => {
    const { world, connection } = await aBreakableWorld();
    connection.losesAnswers = true;
    connection.cut(); // no event reports it either
    world.coordinator.sendOrder(aStartOrder({ replicaId: 'web-2' }));
    await settle();
    connection.losesAnswers = false;
    await world.clock.advance(1_000);
    expect(world.summarizeReport('web-2')).toMatchObject({
      phase: 'RUNNING',
      ready: true,
      restarts: 0,
    });
    expect(world.machine.startCount).toBe(2);
  });

  it('stops a container whose start was not answered', async () => {
    const { world, connection } = await aBreakableWorld();
    connection.losesAnswers = true;
    connection.cut();
    world.coordinator.sendOrder(aStartOrder({ replicaId: 'web-2' }));
    world.coordinator.sendOrder(aStopOrder({ replicaId: 'web-2', graceMs: 0 }));
    await world.clock.advance(1_000);
    expect(world.summarizeReport('web-2')).toMatchObject({ phase: 'STOPPED' });
    expect((await world.runtime.list()).filter(({ phase }) => phase === 'running')).toHaveLength(1);
  });
});
