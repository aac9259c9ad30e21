import { CloudlessError, toContainerId } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import { Port_Protocol, RestartPolicy_Policy } from '@cloudless/api';
import { aForgetOrder, aStartOrder, aStopOrder, AgentTestBed } from './testing/index.js';

const withPort = { ports: [{ name: 'http', containerPort: 80, protocol: Port_Protocol.TCP }] };

async function createTestBed(...orders: ReturnType<typeof aStartOrder>[]): Promise<AgentTestBed> {
  const testBed = new AgentTestBed();
  await testBed.start();
  for (const order of orders) testBed.coordinator.sendOrder(order);
  await settle();
  return testBed;
}

const idOf = (testBed: AgentTestBed, replicaId = 'web-1') =>
  toContainerId(testBed.requireReport(replicaId).containerId);

describe('Agent', () => {
  it('enrols at the first start, sends Hello with an empty inventory and stores its cluster id', async () => {
    const testBed = await createTestBed();
    expect(testBed.coordinator.received.map(({ case: kind }) => kind)).toEqual([
      'hello',
      'inventory',
      'usage',
    ]);
    expect(testBed.coordinator.hellos[0]).toMatchObject({
      nodeId: 'node-1',
      clusterId: 'cluster-1',
      bootId: 'boot-1',
      highestEpoch: 0n,
    });
    expect(testBed.store.identity).toMatchObject({
      nodeId: 'node-1',
      clusterId: 'cluster-1',
      highestEpoch: 1n,
    });
    await testBed.restart();
    expect(testBed.coordinator.enrolments).toHaveLength(1);
    expect(testBed.coordinator.hellos[1]).toMatchObject({
      instanceId: testBed.coordinator.hellos[0]?.instanceId,
      highestEpoch: 1n,
    });
  });

  it('takes another name in the data directory of a node that never joined, as a new machine', async () => {
    const testBed = new AgentTestBed();
    testBed.store.identity = { nodeId: 'node-9', instanceId: 'x', highestEpoch: 0n };
    await testBed.start();
    await settle();
    expect(testBed.coordinator.hellos[0]).toMatchObject({
      nodeId: 'node-1',
      instanceId: expect.not.stringMatching(/^x$/),
    });
    expect(testBed.store.identity).toMatchObject({ nodeId: 'node-1', clusterId: 'cluster-1' });
  });

  it.each([
    { name: 'was enrolled', joined: { clusterId: 'cluster-1', highestEpoch: 0n } },
    { name: 'has had a session', joined: { highestEpoch: 1n } },
  ])('refuses the data directory of another node that $name', async ({ joined }) => {
    const testBed = new AgentTestBed();
    testBed.store.identity = { nodeId: 'node-9', instanceId: 'x', ...joined };
    await expect(testBed.start()).rejects.toMatchObject({
      kind: 'precondition',
      message: expect.stringContaining('belongs to node node-9, not to node-1'),
    });
  });

  it('starts a replica and reports it ready once every TCP port accepts connections', async () => {
    const testBed = new AgentTestBed();
    testBed.closedPorts.add('*');
    await testBed.start();
    testBed.coordinator.sendOrder(aStartOrder({ spec: withPort }));
    await testBed.clock.advance(500);
    expect(testBed.summarizeReport()).toEqual({
      phase: 'RUNNING',
      ready: false,
      restarts: 0,
      reason: 'waiting for port http to accept connections',
    });
    testBed.closedPorts.clear();
    await testBed.clock.advance(250);
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: true, reason: '' });
    expect(testBed.requireReport()).toMatchObject({
      orderRevision: 10n,
      endpoints: [{ portName: 'http', ip: '127.0.0.1' }],
    });
    expect(idOf(testBed)).toMatch(/^[0-9a-f]{64}$/);
  });

  it('stores a start order before it carries it out, and reports why when the store fails', async () => {
    const testBed = await createTestBed();
    testBed.store.failure = new Error('disk full');
    testBed.coordinator.sendOrder(aStartOrder());
    await settle();
    expect(testBed.machine.startCount).toBe(0);
    expect(testBed.requireReport()).toMatchObject({
      orderRevision: 0n,
      reason: 'cannot start: the node cannot store the order: disk full',
    });
    testBed.store.failure = undefined;
    testBed.coordinator.sendOrder(aStartOrder());
    await settle();
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'RUNNING' });
    expect(testBed.store.replicas.has('web-1')).toBe(true);
  });

  it('restarts a crashed container in place after a growing delay, and reports the delay', async () => {
    const testBed = await createTestBed(aStartOrder());
    const first = idOf(testBed);
    testBed.machine.exit(first, 3);
    await settle();
    expect(testBed.summarizeReport()).toEqual({
      phase: 'RUNNING',
      ready: false,
      restarts: 1,
      reason: 'exit code 3, restarting in 100 ms',
    });
    await testBed.clock.advance(100);
    expect(testBed.summarizeReport()).toEqual({
      phase: 'RUNNING',
      ready: true,
      restarts: 1,
      reason: '',
    });
    expect(idOf(testBed)).not.toBe(first);
    expect(testBed.requireReport()).toMatchObject({
      earlierContainerIds: [first],
      lastExitCode: 3,
    });
    testBed.machine.exit(idOf(testBed), 3);
    await settle();
    expect(testBed.summarizeReport()?.reason).toBe('exit code 3, restarting in 200 ms');
  });

  it('resets the restart delay after ten minutes without a crash', async () => {
    const testBed = await createTestBed(aStartOrder());
    for (let crash = 0; crash < 4; crash += 1) {
      testBed.machine.exit(idOf(testBed), 1);
      await testBed.clock.advance(1_000);
    }
    await testBed.clock.advance(600_000);
    testBed.machine.exit(idOf(testBed), 1);
    await settle();
    expect(testBed.summarizeReport()?.reason).toBe('exit code 1, restarting in 100 ms');
  });

  it('keeps the two newest exited containers of a replica and removes older containers', async () => {
    const testBed = await createTestBed(aStartOrder());
    const ids = [];
    for (let crash = 0; crash < 4; crash += 1) {
      ids.push(idOf(testBed));
      testBed.machine.exit(idOf(testBed), 1);
      await testBed.clock.advance(10_000);
    }
    expect(testBed.requireReport().earlierContainerIds).toEqual(ids.slice(-2));
    expect((await testBed.runtime.list()).map(({ containerId }) => containerId)).toEqual([
      ...ids.slice(-2),
      idOf(testBed),
    ]);
  });

  it.each(
    [
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
    ].map((row) => ({ ...row, policyName: RestartPolicy_Policy[row.policy] })),
  )(
    'reports $phase when a container exits with code $exitCode under restart policy $policyName',
    async ({ policy, exitCode, phase, reason }) => {
      const testBed = await createTestBed(aStartOrder({ spec: { restart: { policy } } }));
      testBed.machine.exit(idOf(testBed), exitCode);
      await settle();
      expect(testBed.summarizeReport()).toMatchObject({ phase, ready: false, reason });
      expect(testBed.requireReport().lastExitCode).toBe(exitCode);
    },
  );

  it('reports FAILED when a container exits after the last retry', async () => {
    const testBed = await createTestBed(
      aStartOrder({ spec: { restart: { policy: RestartPolicy_Policy.ALWAYS, maxRetries: 2 } } }),
    );
    for (let crash = 0; crash < 3; crash += 1) {
      testBed.machine.exit(idOf(testBed), 7);
      await testBed.clock.advance(1_000);
    }
    expect(testBed.summarizeReport()).toEqual({
      phase: 'FAILED',
      ready: false,
      restarts: 2,
      reason: 'exit code 7; gave up after 2 retries',
    });
    expect(testBed.machine.startCount).toBe(3);
  });

  it('retries a failing start and reports the reason', async () => {
    const testBed = new AgentTestBed();
    testBed.machine.removeExecutable('server');
    await testBed.start();
    testBed.coordinator.sendOrder(aStartOrder());
    await settle();
    expect(testBed.summarizeReport()).toEqual({
      phase: 'STARTING',
      ready: false,
      restarts: 1,
      reason: 'command: no executable server, restarting in 100 ms',
    });
    await testBed.clock.advance(100);
    expect(testBed.summarizeReport()).toMatchObject({
      phase: 'STARTING',
      restarts: 2,
      reason: 'command: no executable server, restarting in 200 ms',
    });
  });

  it('retries a start after 500 ms when the runtime is unavailable, and counts no restart', async () => {
    const testBed = await createTestBed();
    testBed.machine.failNextStart(new CloudlessError('unavailable', 'the supervisor is away'));
    testBed.coordinator.sendOrder(aStartOrder());
    await settle();
    expect(testBed.summarizeReport()).toMatchObject({
      phase: 'STARTING',
      restarts: 0,
      reason: 'the supervisor is away, trying again in 500 ms',
    });
    await testBed.clock.advance(500);
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: true, restarts: 0 });
  });

  it('reports the reason and starts nothing when an order names a runtime that the node does not have', async () => {
    const testBed = await createTestBed(aStartOrder({ spec: { runtime: 'cri' } }));
    expect(testBed.summarizeReport()?.reason).toContain(
      'spec.runtime: this node runs process, not cri',
    );
    expect(testBed.machine.startCount).toBe(0);
  });

  it('stops a replica in this order: not ready, pre-stop delay, SIGTERM, SIGKILL after the grace period', async () => {
    const testBed = await createTestBed(
      aStartOrder({
        spec: {
          ...withPort,
          command: ['behave', JSON.stringify([{ step: 'ignoreTerm' }, { step: 'hold' }])],
        },
      }),
    );
    testBed.coordinator.sendOrder(aStopOrder());
    await testBed.clock.advance(999);
    expect(testBed.summarizeReport()).toEqual({
      phase: 'STOPPING',
      ready: false,
      restarts: 0,
      reason: 'scaled down',
    });
    await testBed.clock.advance(10_000);
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'STOPPING' });
    await testBed.clock.advance(1);
    expect(testBed.summarizeReport()).toEqual({
      phase: 'STOPPED',
      ready: false,
      restarts: 0,
      reason: 'killed by SIGKILL',
    });
    expect(testBed.requireReport()).toMatchObject({
      orderRevision: 20n,
      lastExitCode: 137,
      endpoints: [],
    });
    await testBed.clock.advance(60_000);
    expect(testBed.machine.startCount).toBe(1);
  });

  it('shortens a stop in progress when a newer stop order has no delay and no grace period', async () => {
    const testBed = await createTestBed(aStartOrder({ spec: withPort }));
    testBed.coordinator.sendOrder(aStopOrder({ preStopMs: 60_000 }));
    await testBed.clock.advance(10);
    testBed.coordinator.sendOrder(aStopOrder({ revision: 21n, preStopMs: 0, graceMs: 0 }));
    await settle();
    expect(testBed.summarizeReport()).toMatchObject({
      phase: 'STOPPED',
      reason: 'killed by SIGKILL',
    });
  });

  it('does not start a replica again when it is stopped during its restart delay', async () => {
    const testBed = await createTestBed(aStartOrder());
    testBed.machine.exit(idOf(testBed), 1);
    await settle();
    testBed.coordinator.sendOrder(aStopOrder());
    await testBed.clock.advance(10_000);
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'STOPPED' });
    expect(testBed.machine.startCount).toBe(1);
  });

  it('acknowledges a stop of an unknown replica and refuses an older start after it', async () => {
    const testBed = await createTestBed(aStopOrder({ revision: 20n }));
    expect(testBed.requireReport()).toMatchObject({ orderRevision: 20n });
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'STOPPED' });
    testBed.coordinator.sendOrder(aStartOrder({ revision: 19n }));
    await settle();
    expect(testBed.machine.startCount).toBe(0);
    expect(testBed.coordinator.received.at(-1)).toMatchObject({
      case: 'refused',
      value: { orderRevision: 19n, heldRevision: 20n, heldEpoch: 1n },
    });
  });

  it('refuses orders of an older epoch, also after a restart of the agent', async () => {
    const testBed = await createTestBed(aStartOrder({ epoch: 5n }));
    testBed.coordinator.sendOrder(aStopOrder({ epoch: 4n, revision: 99n }));
    await settle();
    expect(testBed.coordinator.received.at(-1)).toMatchObject({
      case: 'refused',
      value: { heldEpoch: 5n },
    });
    await testBed.restart();
    testBed.coordinator.sendOrder(aStopOrder({ epoch: 4n, revision: 99n }));
    await settle();
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'RUNNING' });
  });

  it('only repeats the report when an order is repeated', async () => {
    const testBed = await createTestBed(aStartOrder());
    const before = testBed.coordinator.reportHistory.length;
    testBed.coordinator.sendOrder(aStartOrder());
    await settle();
    expect(testBed.coordinator.reportHistory.length).toBe(before + 1);
    expect(testBed.machine.startCount).toBe(1);
  });

  it('carries out a forget order: stops the container, removes containers and stored data, acknowledges', async () => {
    const testBed = await createTestBed(aStartOrder());
    testBed.machine.exit(idOf(testBed), 1);
    await testBed.clock.advance(1_000);
    testBed.coordinator.sendOrder(aForgetOrder());
    await testBed.clock.advance(0);
    expect(await testBed.runtime.list()).toEqual([]);
    expect(testBed.store.replicas.size).toBe(0);
    expect(testBed.requireReport()).toMatchObject({
      orderRevision: 30n,
      containerId: '',
      earlierContainerIds: [],
    });
  });

  it('acknowledges each forget order with one report when the replica is already forgotten', async () => {
    const testBed = await createTestBed(aStartOrder());
    testBed.coordinator.sendOrder(aForgetOrder());
    await testBed.clock.advance(0);
    expect(testBed.requireReport()).toMatchObject({ forgotten: true, orderRevision: 30n });
    const before = testBed.coordinator.reportHistory.length;
    testBed.coordinator.sendOrder(aForgetOrder({ revision: 31n }));
    await settle();
    expect(testBed.requireReport()).toMatchObject({ forgotten: true, orderRevision: 31n });
    expect(testBed.coordinator.reportHistory.length).toBe(before + 1);
  });

  it('accepts a forget order with the revision of the preceding stop order', async () => {
    const testBed = await createTestBed(aStartOrder());
    testBed.coordinator.sendOrder(aStopOrder({ revision: 30n }));
    await testBed.clock.advance(60_000);
    expect(testBed.requireReport()).toMatchObject({ forgotten: false, orderRevision: 30n });
    testBed.coordinator.sendOrder(aForgetOrder({ revision: 30n }));
    await testBed.clock.advance(0);
    expect(testBed.requireReport()).toMatchObject({ forgotten: true });
    expect(testBed.store.replicas.size).toBe(0);
  });

  it('leaves no ReplicaRunner and no stored data of a replica when more forget orders arrive while it carries out the first', async () => {
    const testBed = await createTestBed(aStartOrder());
    for (let repeat = 0n; repeat < 20n; repeat += 1n) {
      testBed.coordinator.sendOrder(aForgetOrder({ revision: 30n + repeat }));
      for (let tick = 0n; tick < repeat; tick += 1n) await Promise.resolve();
    }
    await testBed.clock.advance(0);
    expect(testBed.store.replicas.size).toBe(0);
    expect(testBed.agent.replicas.listRunners()).toEqual([]);
  });

  it.each([
    ['the Welcome', false],
    ['the enrolment', true],
  ])(
    'rejects %s of another cluster with an error that names the reset command',
    async (_message, enrolsAgain) => {
      const testBed = await createTestBed(aStartOrder());
      const lines: unknown[] = [];
      testBed.log = {
        ...testBed.log,
        error: (message, fields) => lines.push({ message, ...fields }),
        child: () => testBed.log,
      };
      testBed.coordinator.clusterId = 'cluster-2';
      if (enrolsAgain) testBed.coordinator.failure = new CloudlessError('notFound', 'no such node');
      await testBed.restart();
      testBed.coordinator.failure = undefined;
      await testBed.clock.advance(10_000);
      expect(lines).toEqual([
        expect.objectContaining({ error: expect.stringContaining('run: cloudless-agent reset') }),
      ]);
      expect(testBed.agent.clusterId).toBe('cluster-1');
      expect(testBed.agent.connected).toBe(false);
      expect((await testBed.runtime.list()).map(({ phase }) => phase)).toEqual(['running']);
    },
  );
});
