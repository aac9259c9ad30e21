import { CloudlessError, toContainerId } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import { Port_Protocol, RestartPolicy_Policy } from '@cloudless/api';
import { aForgetOrder, aStartOrder, aStopOrder, AgentTestBed } from './testing/index.js';

const withPort = { ports: [{ name: 'http', containerPort: 80, protocol: Port_Protocol.TCP }] };

async function aWorld(...orders: ReturnType<typeof aStartOrder>[]): Promise<AgentTestBed> {
  const world = new AgentTestBed();
  await world.start();
  for (const order of orders) world.coordinator.sendOrder(order);
  await settle();
  return world;
}

const idOf = (world: AgentTestBed, replicaId = 'web-1') =>
  toContainerId(world.requireReport(replicaId).containerId);

describe('Agent', () => {
  it('enrols at the first start, sends Hello with an empty inventory and stores its cluster id', async () => {
    const world = await aWorld();
    expect(world.coordinator.received.map(({ case: kind }) => kind)).toEqual([
      'hello',
      'inventory',
      'usage',
    ]);
    expect(world.coordinator.hellos[0]).toMatchObject({
      nodeId: 'node-1',
      clusterId: 'cluster-1',
      bootId: 'boot-1',
      highestEpoch: 0n,
    });
    expect(world.store.identity).toMatchObject({
      nodeId: 'node-1',
      clusterId: 'cluster-1',
      highestEpoch: 1n,
    });
    await world.restart();
    expect(world.coordinator.enrolments).toHaveLength(1);
    expect(world.coordinator.hellos[1]).toMatchObject({
      instanceId: world.coordinator.hellos[0]?.instanceId,
      highestEpoch: 1n,
    });
  });

  it('starts a replica and reports it ready once every TCP port accepts connections', async () => {
    const world = new AgentTestBed();
    world.closedPorts.add('*');
    await world.start();
    world.coordinator.sendOrder(aStartOrder({ spec: withPort }));
    await world.clock.advance(500);
    expect(world.summarizeReport()).toEqual({
      phase: 'RUNNING',
      ready: false,
      restarts: 0,
      reason: 'waiting for port http to accept connections',
    });
    world.closedPorts.clear();
    await world.clock.advance(250);
    expect(world.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: true, reason: '' });
    expect(world.requireReport()).toMatchObject({
      orderRevision: 10n,
      endpoints: [{ portName: 'http', ip: '127.0.0.1' }],
    });
    expect(idOf(world)).toMatch(/^[0-9a-f]{64}$/);
  });

  it('stores an order before it carries it out, and ignores the order when the store fails', async () => {
    const world = await aWorld();
    world.store.failure = new Error('disk full');
    world.coordinator.sendOrder(aStartOrder());
    await settle();
    expect(world.machine.startCount).toBe(0);
    expect(world.summarizeReport()).toBeUndefined();
    world.store.failure = undefined;
    world.coordinator.sendOrder(aStartOrder());
    await settle();
    expect(world.summarizeReport()).toMatchObject({ phase: 'RUNNING' });
    expect(world.store.replicas.has('web-1')).toBe(true);
  });

  it('restarts a crashed container in place with growing delay, and reports so', async () => {
    const world = await aWorld(aStartOrder());
    const first = idOf(world);
    world.machine.exit(first, 3);
    await settle();
    expect(world.summarizeReport()).toEqual({
      phase: 'RUNNING',
      ready: false,
      restarts: 1,
      reason: 'exit code 3, restarting in 100 ms',
    });
    await world.clock.advance(100);
    expect(world.summarizeReport()).toEqual({
      phase: 'RUNNING',
      ready: true,
      restarts: 1,
      reason: '',
    });
    expect(idOf(world)).not.toBe(first);
    expect(world.requireReport()).toMatchObject({ earlierContainerIds: [first], lastExitCode: 3 });
    world.machine.exit(idOf(world), 3);
    await settle();
    expect(world.summarizeReport()?.reason).toBe('exit code 3, restarting in 200 ms');
  });

  it('resets the restart delay after ten minutes without a crash', async () => {
    const world = await aWorld(aStartOrder());
    for (let crash = 0; crash < 4; crash += 1) {
      world.machine.exit(idOf(world), 1);
      await world.clock.advance(1_000);
    }
    await world.clock.advance(600_000);
    world.machine.exit(idOf(world), 1);
    await settle();
    expect(world.summarizeReport()?.reason).toBe('exit code 1, restarting in 100 ms');
  });

  it('keeps the two newest exited containers and removes older ones', async () => {
    const world = await aWorld(aStartOrder());
    const ids = [];
    for (let crash = 0; crash < 4; crash += 1) {
      ids.push(idOf(world));
      world.machine.exit(idOf(world), 1);
      await world.clock.advance(10_000);
    }
    expect(world.requireReport().earlierContainerIds).toEqual(ids.slice(-2));
    expect((await world.runtime.list()).map(({ containerId }) => containerId)).toEqual([
      ...ids.slice(-2),
      idOf(world),
    ]);
  });

  it.each([
    { policy: RestartPolicy_Policy.NEVER, exitCode: 0, phase: 'SUCCEEDED', reason: 'completed' },
    {
      policy: RestartPolicy_Policy.NEVER,
      exitCode: 2,
      phase: 'FAILED',
      reason: 'exit code 2; never restarted',
    },
    {
      policy: RestartPolicy_Policy.ON_FAILURE,
      exitCode: 0,
      phase: 'SUCCEEDED',
      reason: 'completed',
    },
    {
      policy: RestartPolicy_Policy.ON_FAILURE,
      exitCode: 2,
      phase: 'RUNNING',
      reason: 'exit code 2, restarting in 100 ms',
    },
    {
      policy: RestartPolicy_Policy.ALWAYS,
      exitCode: 0,
      phase: 'RUNNING',
      reason: 'completed, restarting in 100 ms',
    },
  ])(
    'applies restart policy $policy to exit code $exitCode: $phase',
    async ({ policy, exitCode, phase, reason }) => {
      const world = await aWorld(aStartOrder({ spec: { restart: { policy } } }));
      world.machine.exit(idOf(world), exitCode);
      await settle();
      expect(world.summarizeReport()).toMatchObject({ phase, ready: false, reason });
      expect(world.requireReport().lastExitCode).toBe(exitCode);
    },
  );

  it('reports FAILED when the retries are used up', async () => {
    const world = await aWorld(
      aStartOrder({ spec: { restart: { policy: RestartPolicy_Policy.ALWAYS, maxRetries: 2 } } }),
    );
    for (let crash = 0; crash < 3; crash += 1) {
      world.machine.exit(idOf(world), 7);
      await world.clock.advance(1_000);
    }
    expect(world.summarizeReport()).toEqual({
      phase: 'FAILED',
      ready: false,
      restarts: 2,
      reason: 'exit code 7; gave up after 2 retries',
    });
    expect(world.machine.startCount).toBe(3);
  });

  it('retries a failing start and reports the reason', async () => {
    const world = new AgentTestBed();
    world.machine.removeExecutable('server');
    await world.start();
    world.coordinator.sendOrder(aStartOrder());
    await settle();
    expect(world.summarizeReport()).toEqual({
      phase: 'STARTING',
      ready: false,
      restarts: 1,
      reason: 'command: no executable server, restarting in 100 ms',
    });
    await world.clock.advance(100);
    expect(world.summarizeReport()).toMatchObject({
      phase: 'STARTING',
      restarts: 2,
      reason: 'command: no executable server, restarting in 200 ms',
    });
  });

  it('retries a start without an answer with the same container id, never with a second one', async () => {
    const world = await aWorld();
    world.machine.failNextStart(new CloudlessError('unavailable', 'the supervisor is away'));
    world.coordinator.sendOrder(aStartOrder());
    await settle();
    expect(world.summarizeReport()).toMatchObject({
      phase: 'STARTING',
      restarts: 0,
      reason: 'the supervisor is away, trying again in 500 ms',
    });
    await world.clock.advance(500);
    expect(world.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: true, restarts: 0 });
  });

  it('reports a failed start for a runtime that the node does not have', async () => {
    const world = await aWorld(aStartOrder({ spec: { runtime: 'cri' } }));
    expect(world.summarizeReport()?.reason).toContain(
      'spec.runtime: this node runs process, not cri',
    );
    expect(world.machine.startCount).toBe(0);
  });

  it('stops a replica: endpoints first, then pre-stop delay, SIGTERM, and SIGKILL after the grace', async () => {
    const world = await aWorld(
      aStartOrder({
        spec: {
          ...withPort,
          command: ['behave', JSON.stringify([{ step: 'ignoreTerm' }, { step: 'hold' }])],
        },
      }),
    );
    world.coordinator.sendOrder(aStopOrder());
    await world.clock.advance(999);
    expect(world.summarizeReport()).toEqual({
      phase: 'STOPPING',
      ready: false,
      restarts: 0,
      reason: 'scaled down',
    });
    await world.clock.advance(10_000);
    expect(world.summarizeReport()).toMatchObject({ phase: 'STOPPING' });
    await world.clock.advance(1);
    expect(world.summarizeReport()).toEqual({
      phase: 'STOPPED',
      ready: false,
      restarts: 0,
      reason: 'killed by SIGKILL',
    });
    expect(world.requireReport()).toMatchObject({
      orderRevision: 20n,
      lastExitCode: 137,
      endpoints: [],
    });
    await world.clock.advance(60_000);
    expect(world.machine.startCount).toBe(1);
  });

  it('shortens a stop by a newer stop order', async () => {
    const world = await aWorld(aStartOrder({ spec: withPort }));
    world.coordinator.sendOrder(aStopOrder({ preStopMs: 60_000 }));
    await world.clock.advance(10);
    world.coordinator.sendOrder(aStopOrder({ revision: 21n, preStopMs: 0, graceMs: 0 }));
    await settle();
    expect(world.summarizeReport()).toMatchObject({
      phase: 'STOPPED',
      reason: 'killed by SIGKILL',
    });
  });

  it('ends a replica that is stopped between two starts', async () => {
    const world = await aWorld(aStartOrder());
    world.machine.exit(idOf(world), 1);
    await settle();
    world.coordinator.sendOrder(aStopOrder());
    await world.clock.advance(10_000);
    expect(world.summarizeReport()).toMatchObject({ phase: 'STOPPED' });
    expect(world.machine.startCount).toBe(1);
  });

  it('acknowledges a stop of an unknown replica and refuses an older start after it', async () => {
    const world = await aWorld(aStopOrder({ revision: 20n }));
    expect(world.requireReport()).toMatchObject({ orderRevision: 20n });
    expect(world.summarizeReport()).toMatchObject({ phase: 'STOPPED' });
    world.coordinator.sendOrder(aStartOrder({ revision: 19n }));
    await settle();
    expect(world.machine.startCount).toBe(0);
    expect(world.coordinator.received.at(-1)).toMatchObject({
      case: 'refused',
      value: { orderRevision: 19n, heldRevision: 20n, heldEpoch: 1n },
    });
  });

  it('refuses orders of an older epoch, also after a restart', async () => {
    const world = await aWorld(aStartOrder({ epoch: 5n }));
    world.coordinator.sendOrder(aStopOrder({ epoch: 4n, revision: 99n }));
    await settle();
    expect(world.coordinator.received.at(-1)).toMatchObject({
      case: 'refused',
      value: { heldEpoch: 5n },
    });
    await world.restart();
    world.coordinator.sendOrder(aStopOrder({ epoch: 4n, revision: 99n }));
    await settle();
    expect(world.summarizeReport()).toMatchObject({ phase: 'RUNNING' });
  });

  it('only repeats the report when an order is repeated', async () => {
    const world = await aWorld(aStartOrder());
    const before = world.coordinator.reportHistory.length;
    world.coordinator.sendOrder(aStartOrder());
    await settle();
    expect(world.coordinator.reportHistory.length).toBe(before + 1);
    expect(world.machine.startCount).toBe(1);
  });

  it('carries out a forget order: stops the container, removes containers and stored data, acknowledges', async () => {
    const world = await aWorld(aStartOrder());
    world.machine.exit(idOf(world), 1);
    await world.clock.advance(1_000);
    world.coordinator.sendOrder(aForgetOrder());
    await world.clock.advance(0);
    expect(await world.runtime.list()).toEqual([]);
    expect(world.store.replicas.size).toBe(0);
    expect(world.requireReport()).toMatchObject({
      orderRevision: 30n,
      containerId: '',
      earlierContainerIds: [],
    });
  });

  it('acknowledges each forget order of an unknown replica once, as the coordinator repeats it until then', async () => {
    const world = await aWorld(aStartOrder());
    world.coordinator.sendOrder(aForgetOrder());
    await world.clock.advance(0);
    expect(world.requireReport()).toMatchObject({ forgotten: true, orderRevision: 30n });
    const before = world.coordinator.reportHistory.length;
    world.coordinator.sendOrder(aForgetOrder({ revision: 31n }));
    await settle();
    expect(world.requireReport()).toMatchObject({ forgotten: true, orderRevision: 31n });
    expect(world.coordinator.reportHistory.length).toBe(before + 1);
  });

  it('accepts a forget order with the revision of the preceding stop order', async () => {
    const world = await aWorld(aStartOrder());
    world.coordinator.sendOrder(aStopOrder({ revision: 30n }));
    await world.clock.advance(60_000);
    expect(world.requireReport()).toMatchObject({ forgotten: false, orderRevision: 30n });
    world.coordinator.sendOrder(aForgetOrder({ revision: 30n }));
    await world.clock.advance(0);
    expect(world.requireReport()).toMatchObject({ forgotten: true });
    expect(world.store.replicas.size).toBe(0);
  });

  it('accepts a second forget order during the first and leaves nothing behind', async () => {
    const world = await aWorld(aStartOrder());
    for (let repeat = 0n; repeat < 20n; repeat += 1n) {
      world.coordinator.sendOrder(aForgetOrder({ revision: 30n + repeat }));
      for (let tick = 0n; tick < repeat; tick += 1n) await Promise.resolve();
    }
    await world.clock.advance(0);
    expect(world.store.replicas.size).toBe(0);
    expect(world.agent.replicas.listRunners()).toEqual([]);
  });

  it.each([
    ['a Welcome', false],
    ['an enrolment', true],
  ])('rejects another cluster at %s, naming the reset command', async (_name, enrolsAgain) => {
    const world = await aWorld(aStartOrder());
    const lines: unknown[] = [];
    world.log = {
      ...world.log,
      error: (message, fields) => lines.push({ message, ...fields }),
      child: () => world.log,
    };
    world.coordinator.clusterId = 'cluster-2';
    if (enrolsAgain) world.coordinator.failure = new CloudlessError('notFound', 'no such node');
    await world.restart();
    world.coordinator.failure = undefined;
    await world.clock.advance(10_000);
    expect(lines).toEqual([
      expect.objectContaining({ error: expect.stringContaining('run: cloudless-agent reset') }),
    ]);
    expect(world.agent.clusterId).toBe('cluster-1');
    expect(world.agent.connected).toBe(false);
    expect((await world.runtime.list()).map(({ phase }) => phase)).toEqual(['running']);
  });
});
