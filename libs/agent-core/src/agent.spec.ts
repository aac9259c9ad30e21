import { CloudlessError, toContainerId } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import { Port_Protocol, RestartPolicy_Policy } from '@cloudless/api';
import { aForgetOrder, aStartOrder, aStopOrder, AgentWorld } from './testing/index.js';

const withPort = { ports: [{ name: 'http', containerPort: 80, protocol: Port_Protocol.TCP }] };

async function aWorld(...orders: ReturnType<typeof aStartOrder>[]): Promise<AgentWorld> {
  const world = new AgentWorld();
  await world.start();
  for (const order of orders) world.coordinator.order(order);
  await settle();
  return world;
}

const idOf = (world: AgentWorld, replicaId = 'web-1') =>
  toContainerId(world.report(replicaId).containerId);

describe('an agent with a coordinator', () => {
  it('enrols at first start, says hello with an empty inventory, and remembers its cluster', async () => {
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

  it('starts what it is told to, and is ready once every TCP port accepts', async () => {
    const world = new AgentWorld();
    world.deafPorts.add('*');
    await world.start();
    world.coordinator.order(aStartOrder({ spec: withPort }));
    await world.clock.advance(500);
    expect(world.seen()).toEqual({
      phase: 'RUNNING',
      ready: false,
      restarts: 0,
      reason: 'waiting for port http to accept connections',
    });
    world.deafPorts.clear();
    await world.clock.advance(250);
    expect(world.seen()).toMatchObject({ phase: 'RUNNING', ready: true, reason: '' });
    expect(world.report()).toMatchObject({
      orderRevision: 10n,
      endpoints: [{ portName: 'http', ip: '127.0.0.1' }],
    });
    expect(idOf(world)).toMatch(/^[0-9a-f]{64}$/);
  });

  it('has an order on disk before it acts on it, and does not act when the disk refuses', async () => {
    const world = await aWorld();
    world.store.failure = new Error('disk full');
    world.coordinator.order(aStartOrder());
    await settle();
    expect(world.machine.startCount).toBe(0);
    expect(world.seen()).toBeUndefined();
    world.store.failure = undefined;
    world.coordinator.order(aStartOrder());
    await settle();
    expect(world.seen()).toMatchObject({ phase: 'RUNNING' });
    expect(world.store.replicas.has('web-1')).toBe(true);
  });

  it('restarts a crash in place, with growing delay, and says so', async () => {
    const world = await aWorld(aStartOrder());
    const first = idOf(world);
    world.machine.exit(first, 3);
    await settle();
    expect(world.seen()).toEqual({
      phase: 'RUNNING',
      ready: false,
      restarts: 1,
      reason: 'exit code 3, restarting in 100 ms',
    });
    await world.clock.advance(100);
    expect(world.seen()).toEqual({ phase: 'RUNNING', ready: true, restarts: 1, reason: '' });
    expect(idOf(world)).not.toBe(first);
    expect(world.report()).toMatchObject({ earlierContainerIds: [first], lastExitCode: 3 });
    world.machine.exit(idOf(world), 3);
    await settle();
    expect(world.seen()?.reason).toBe('exit code 3, restarting in 200 ms');
  });

  it('begins anew with the delays after ten minutes up', async () => {
    const world = await aWorld(aStartOrder());
    for (let crash = 0; crash < 4; crash += 1) {
      world.machine.exit(idOf(world), 1);
      await world.clock.advance(1_000);
    }
    await world.clock.advance(600_000);
    world.machine.exit(idOf(world), 1);
    await settle();
    expect(world.seen()?.reason).toBe('exit code 1, restarting in 100 ms');
  });

  it('keeps the two newest ended containers and removes older ones', async () => {
    const world = await aWorld(aStartOrder());
    const ids = [];
    for (let crash = 0; crash < 4; crash += 1) {
      ids.push(idOf(world));
      world.machine.exit(idOf(world), 1);
      await world.clock.advance(10_000);
    }
    expect(world.report().earlierContainerIds).toEqual(ids.slice(-2));
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
  ])('policy $policy after exit $exitCode: $phase', async ({ policy, exitCode, phase, reason }) => {
    const world = await aWorld(aStartOrder({ spec: { restart: { policy } } }));
    world.machine.exit(idOf(world), exitCode);
    await settle();
    expect(world.seen()).toMatchObject({ phase, ready: false, reason });
    expect(world.report().lastExitCode).toBe(exitCode);
  });

  it('has failed when the retries are spent', async () => {
    const world = await aWorld(
      aStartOrder({ spec: { restart: { policy: RestartPolicy_Policy.ALWAYS, maxRetries: 2 } } }),
    );
    for (let crash = 0; crash < 3; crash += 1) {
      world.machine.exit(idOf(world), 7);
      await world.clock.advance(1_000);
    }
    expect(world.seen()).toEqual({
      phase: 'FAILED',
      ready: false,
      restarts: 2,
      reason: 'exit code 7; gave up after 2 retries',
    });
    expect(world.machine.startCount).toBe(3);
  });

  it('tries a start that cannot work again, and shows why', async () => {
    const world = new AgentWorld();
    world.machine.removeExecutable('server');
    await world.start();
    world.coordinator.order(aStartOrder());
    await settle();
    expect(world.seen()).toEqual({
      phase: 'STARTING',
      ready: false,
      restarts: 1,
      reason: 'command: no executable server, restarting in 100 ms',
    });
    await world.clock.advance(100);
    expect(world.seen()).toMatchObject({
      phase: 'STARTING',
      restarts: 2,
      reason: 'command: no executable server, restarting in 200 ms',
    });
  });

  it('a start of which the runtime says nothing is tried again with the same id: never two', async () => {
    const world = await aWorld();
    world.machine.failNextStart(new CloudlessError('unavailable', 'the supervisor is away'));
    world.coordinator.order(aStartOrder());
    await settle();
    expect(world.seen()).toMatchObject({
      phase: 'STARTING',
      restarts: 0,
      reason: 'the supervisor is away, trying again in 500 ms',
    });
    await world.clock.advance(500);
    expect(world.seen()).toMatchObject({ phase: 'RUNNING', ready: true, restarts: 0 });
  });

  it('refuses a runtime it does not have', async () => {
    const world = await aWorld(aStartOrder({ spec: { runtime: 'cri' } }));
    expect(world.seen()?.reason).toContain('spec.runtime: this node runs process, not cri');
    expect(world.machine.startCount).toBe(0);
  });

  it('stops: leaves the endpoints, waits, asks, and kills after the grace', async () => {
    const world = await aWorld(
      aStartOrder({
        spec: {
          ...withPort,
          command: ['behave', JSON.stringify([{ step: 'ignoreTerm' }, { step: 'hold' }])],
        },
      }),
    );
    world.coordinator.order(aStopOrder());
    await world.clock.advance(999);
    expect(world.seen()).toEqual({
      phase: 'STOPPING',
      ready: false,
      restarts: 0,
      reason: 'scaled down',
    });
    await world.clock.advance(10_000);
    expect(world.seen()).toMatchObject({ phase: 'STOPPING' });
    await world.clock.advance(1);
    expect(world.seen()).toEqual({
      phase: 'STOPPED',
      ready: false,
      restarts: 0,
      reason: 'killed by SIGKILL',
    });
    expect(world.report()).toMatchObject({ orderRevision: 20n, lastExitCode: 137, endpoints: [] });
    await world.clock.advance(60_000);
    expect(world.machine.startCount).toBe(1);
  });

  it('a newer stop hastens an older one', async () => {
    const world = await aWorld(aStartOrder({ spec: withPort }));
    world.coordinator.order(aStopOrder({ preStopMs: 60_000 }));
    await world.clock.advance(10);
    world.coordinator.order(aStopOrder({ revision: 21n, preStopMs: 0, graceMs: 0 }));
    await settle();
    expect(world.seen()).toMatchObject({ phase: 'STOPPED', reason: 'killed by SIGKILL' });
  });

  it('a stop between two starts ends the replica', async () => {
    const world = await aWorld(aStartOrder());
    world.machine.exit(idOf(world), 1);
    await settle();
    world.coordinator.order(aStopOrder());
    await world.clock.advance(10_000);
    expect(world.seen()).toMatchObject({ phase: 'STOPPED' });
    expect(world.machine.startCount).toBe(1);
  });

  it('acknowledges a stop for a replica it never had, and refuses an older start after it', async () => {
    const world = await aWorld(aStopOrder({ revision: 20n }));
    expect(world.report()).toMatchObject({ orderRevision: 20n });
    expect(world.seen()).toMatchObject({ phase: 'STOPPED' });
    world.coordinator.order(aStartOrder({ revision: 19n }));
    await settle();
    expect(world.machine.startCount).toBe(0);
    expect(world.coordinator.received.at(-1)).toMatchObject({
      case: 'refused',
      value: { orderRevision: 19n, heldRevision: 20n, heldEpoch: 1n },
    });
  });

  it('refuses orders of an older epoch, also after its restart', async () => {
    const world = await aWorld(aStartOrder({ epoch: 5n }));
    world.coordinator.order(aStopOrder({ epoch: 4n, revision: 99n }));
    await settle();
    expect(world.coordinator.received.at(-1)).toMatchObject({
      case: 'refused',
      value: { heldEpoch: 5n },
    });
    await world.restart();
    world.coordinator.order(aStopOrder({ epoch: 4n, revision: 99n }));
    await settle();
    expect(world.seen()).toMatchObject({ phase: 'RUNNING' });
  });

  it('only reports again when an order is repeated', async () => {
    const world = await aWorld(aStartOrder());
    const before = world.coordinator.history.length;
    world.coordinator.order(aStartOrder());
    await settle();
    expect(world.coordinator.history.length).toBe(before + 1);
    expect(world.machine.startCount).toBe(1);
  });

  it('forgets: stops what runs, removes containers and memory, and acknowledges', async () => {
    const world = await aWorld(aStartOrder());
    world.machine.exit(idOf(world), 1);
    await world.clock.advance(1_000);
    world.coordinator.order(aForgetOrder());
    await world.clock.advance(0);
    expect(await world.runtime.list()).toEqual([]);
    expect(world.store.replicas.size).toBe(0);
    expect(world.report()).toMatchObject({
      orderRevision: 30n,
      containerId: '',
      earlierContainerIds: [],
    });
  });

  it('answers each forgetting of what it does not know, once: the coordinator asks until it hears that', async () => {
    const world = await aWorld(aStartOrder());
    world.coordinator.order(aForgetOrder());
    await world.clock.advance(0);
    expect(world.report()).toMatchObject({ forgotten: true, orderRevision: 30n });
    const before = world.coordinator.history.length;
    world.coordinator.order(aForgetOrder({ revision: 31n }));
    await settle();
    expect(world.report()).toMatchObject({ forgotten: true, orderRevision: 31n });
    expect(world.coordinator.history.length).toBe(before + 1);
  });

  it('takes a forgetting that has the revision of the stop before it, as nothing was committed in between', async () => {
    const world = await aWorld(aStartOrder());
    world.coordinator.order(aStopOrder({ revision: 30n }));
    await world.clock.advance(60_000);
    expect(world.report()).toMatchObject({ forgotten: false, orderRevision: 30n });
    world.coordinator.order(aForgetOrder({ revision: 30n }));
    await world.clock.advance(0);
    expect(world.report()).toMatchObject({ forgotten: true });
    expect(world.store.replicas.size).toBe(0);
  });

  it('takes a forgetting that comes while it forgets, and leaves nothing behind', async () => {
    const world = await aWorld(aStartOrder());
    for (let repeat = 0n; repeat < 20n; repeat += 1n) {
      world.coordinator.order(aForgetOrder({ revision: 30n + repeat }));
      for (let tick = 0n; tick < repeat; tick += 1n) await Promise.resolve();
    }
    await world.clock.advance(0);
    expect(world.store.replicas.size).toBe(0);
    expect(world.agent.replicas.all()).toEqual([]);
  });

  it.each([
    ['a Welcome', false],
    ['an enrolment', true],
  ])('refuses another cluster at %s, naming the reset command', async (_name, enrolsAgain) => {
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
