import { CloudlessError, sleep, toContainerId } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import { toBehaviourCommand, type FakeRuntime } from '@cloudless/runtime/testing';
import { aNodeNetwork, aStartOrder, aStopOrder, AgentTestBed } from '../testing/index.js';

const STOP_AFTER_MS = 10_000;

/** Creates a test bed with a running exclusive replica and contact to the coordinator. */
async function createExclusiveTestBed(spec: object = {}): Promise<AgentTestBed> {
  const testBed = new AgentTestBed();
  await testBed.start();
  testBed.coordinator.sendOrder(aStartOrder({ stopAfterMs: STOP_AFTER_MS, spec }));
  await settle();
  expect(testBed.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: true });
  return testBed;
}

/** Creates a test bed whose network proxy takes 4 s to answer before each start. */
function createSlowNetworkTestBed(): AgentTestBed {
  const testBed = new AgentTestBed();
  testBed.network = aNodeNetwork({
    findServices: async () => sleep(testBed.clock, 4_000).then(() => undefined),
  });
  return testBed;
}

/** Number of containers that run on the machine, independent of the agent's state. */
async function countRunning(testBed: AgentTestBed): Promise<number> {
  return testBed.machine.statuses().filter(({ phase }) => phase === 'running').length;
}

describe('exclusive replica', () => {
  it('keeps running while pings are answered', async () => {
    const testBed = await createExclusiveTestBed();
    await testBed.clock.advance(10 * STOP_AFTER_MS);
    expect(testBed.summarizeReport()).toMatchObject({ ready: true, restarts: 0 });
    expect(testBed.machine.startCount).toBe(1);
  });

  it.each([
    [
      'pings are no longer answered',
      (testBed: AgentTestBed) => void (testBed.coordinator.answersPings = false),
    ],
    [
      'the coordinator cannot be reached',
      (testBed: AgentTestBed) => {
        testBed.coordinator.reachable = false;
        testBed.coordinator.dropConnections();
      },
    ],
    [
      'the coordinator answers pings but does not admit the node',
      (testBed: AgentTestBed) => {
        testBed.coordinator.admitsNodes = false;
        testBed.coordinator.dropConnections();
      },
    ],
  ])('is stopped stop_after after the last contact when %s', async (_condition, loseContact) => {
    const testBed = await createExclusiveTestBed();
    await testBed.clock.advance(900); // the newest ping was sent now
    loseContact(testBed);
    await testBed.clock.advance(STOP_AFTER_MS - 1_000);
    expect(await countRunning(testBed)).toBe(1);
    await testBed.clock.advance(1_000);
    expect(await countRunning(testBed)).toBe(0);
    await testBed.clock.advance(3_600_000);
    expect(testBed.machine.startCount).toBe(1);
  });

  it('is stopped although its agent was killed, and started by the next agent only after a repeated order', async () => {
    const testBed = await createExclusiveTestBed();
    await testBed.kill();
    await testBed.clock.advance(STOP_AFTER_MS);
    expect(await countRunning(testBed)).toBe(0);
    await testBed.start();
    await testBed.clock.advance(60_000);
    expect(testBed.requireReport()).toMatchObject({ orderRevision: 0n, ready: false, restarts: 1 });
    expect(testBed.requireReport().reason).toBe(
      'exclusive: without contact with a coordinator for too long; starts when a coordinator repeats the order',
    );
    expect(testBed.machine.startCount).toBe(1);
    testBed.coordinator.sendOrder(aStartOrder({ stopAfterMs: STOP_AFTER_MS }));
    await settle();
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: true, restarts: 1 });
  });

  it('has a lease with stop_after as grace period when its termination grace period is longer', async () => {
    const testBed = await createExclusiveTestBed({ terminationGracePeriod: { seconds: 3_600n } });
    const [container] = testBed.machine.statuses();
    expect(
      testBed.machine.requireRequest(toContainerId(container?.containerId ?? '')),
    ).toMatchObject({
      lease: { graceMs: STOP_AFTER_MS },
    });
  });

  it('has its full grace period in an ordered stop only while there is contact', async () => {
    const command = [...toBehaviourCommand([{ step: 'ignoreTerm' }, { step: 'hold' }])];
    const testBed = await createExclusiveTestBed({
      command,
      terminationGracePeriod: { seconds: 3_600n },
    });
    testBed.coordinator.sendOrder(aStopOrder());
    await testBed.clock.advance(4 * STOP_AFTER_MS);
    expect(await countRunning(testBed)).toBe(1);
    testBed.coordinator.reachable = false;
    testBed.coordinator.dropConnections();
    await testBed.clock.advance(2 * STOP_AFTER_MS);
    expect(await countRunning(testBed)).toBe(0);
  });

  it('starts again after a repeated start order, and stops after a stop order, once there is contact again', async () => {
    for (const isStillWanted of [true, false]) {
      const testBed = await createExclusiveTestBed();
      testBed.coordinator.reachable = false;
      testBed.coordinator.dropConnections();
      await testBed.clock.advance(STOP_AFTER_MS);
      testBed.coordinator.reachable = true;
      await testBed.clock.advance(5_000);
      expect(testBed.requireReport()).toMatchObject({ orderRevision: 0n, ready: false });
      testBed.coordinator.sendOrder(
        isStillWanted ? aStartOrder({ stopAfterMs: STOP_AFTER_MS }) : aStopOrder(),
      );
      await settle();
      expect(testBed.summarizeReport()?.phase).toBe(isStillWanted ? 'RUNNING' : 'STOPPED');
      expect(await countRunning(testBed)).toBe(isStillWanted ? 1 : 0);
    }
  });

  it('is restarted in place after a crash while there is contact, and not without contact', async () => {
    const testBed = await createExclusiveTestBed();
    testBed.machine.exit(toContainerId(testBed.requireReport().containerId), 1);
    await testBed.clock.advance(100);
    expect(testBed.summarizeReport()).toMatchObject({ ready: true, restarts: 1 });
    testBed.coordinator.reachable = false;
    testBed.coordinator.dropConnections();
    await testBed.clock.advance(STOP_AFTER_MS - 1_000);
    testBed.machine.exit(toContainerId(testBed.requireReport().containerId), 1);
    await testBed.clock.advance(500); // the last contact is less than stop_after ago
    expect(await countRunning(testBed)).toBe(1);
    await testBed.clock.advance(STOP_AFTER_MS);
    expect(await countRunning(testBed)).toBe(0);
  });

  it('is not started after a restart of the agent without contact', async () => {
    const testBed = await createExclusiveTestBed();
    testBed.machine.exit(toContainerId(testBed.requireReport().containerId), 1);
    testBed.coordinator.reachable = false;
    await testBed.restart();
    await testBed.clock.advance(60_000);
    expect(testBed.machine.startCount).toBe(1);
  });

  it('becomes non-exclusive and exclusive again by new start orders, without a restart', async () => {
    const testBed = await createExclusiveTestBed();
    testBed.coordinator.sendOrder(aStartOrder({ revision: 11n }));
    await settle();
    expect(testBed.requireReport()).toMatchObject({ orderRevision: 11n, ready: true });
    testBed.coordinator.answersPings = false;
    await testBed.clock.advance(3 * STOP_AFTER_MS);
    expect(await countRunning(testBed)).toBe(1);
    testBed.coordinator.answersPings = true;
    await testBed.clock.advance(5_000);
    testBed.coordinator.sendOrder(aStartOrder({ revision: 12n, stopAfterMs: STOP_AFTER_MS }));
    await settle();
    expect(testBed.requireReport()).toMatchObject({ orderRevision: 12n, ready: true });
    await testBed.kill();
    await testBed.clock.advance(STOP_AFTER_MS);
    expect(await countRunning(testBed)).toBe(0);
    expect(testBed.machine.startCount).toBe(1);
  });

  it('does not acknowledge the order that makes it exclusive before the coordinator admits the node', async () => {
    const testBed = new AgentTestBed();
    await testBed.start();
    testBed.coordinator.sendOrder(aStartOrder());
    await settle();
    testBed.coordinator.admitsNodes = false;
    await testBed.restart();
    testBed.coordinator.sendOrder(aStartOrder({ revision: 12n, stopAfterMs: STOP_AFTER_MS }));
    await settle();
    expect(testBed.requireReport()).toMatchObject({ orderRevision: 10n, ready: true });
    expect(await countRunning(testBed)).toBe(1);
  });

  it('has a lease before the order that makes it exclusive is stored', async () => {
    const testBed = new AgentTestBed();
    await testBed.start();
    testBed.coordinator.sendOrder(aStartOrder());
    await settle();
    const renew = testBed.runtime.renew.bind(testBed.runtime);
    testBed.runtime.renew = async () =>
      Promise.reject(new CloudlessError('unavailable', 'no connection to the supervisor'));
    testBed.coordinator.sendOrder(aStartOrder({ revision: 11n, stopAfterMs: STOP_AFTER_MS }));
    await settle();
    expect(testBed.store.replicas.get('web-1')?.heldRevision).toBe(10n);
    testBed.runtime.renew = renew;
    testBed.coordinator.sendOrder(aStartOrder({ revision: 11n, stopAfterMs: STOP_AFTER_MS }));
    await settle();
    expect(testBed.store.replicas.get('web-1')?.heldRevision).toBe(11n);
  });

  it('loses its new lease when the order that makes it exclusive cannot be stored', async () => {
    const testBed = new AgentTestBed();
    await testBed.start();
    testBed.coordinator.sendOrder(aStartOrder());
    await settle();
    testBed.store.failure = new Error('no space left on device');
    testBed.coordinator.sendOrder(aStartOrder({ revision: 11n, stopAfterMs: STOP_AFTER_MS }));
    await settle();
    await testBed.clock.advance(3 * STOP_AFTER_MS);
    expect(testBed.requireReport()).toMatchObject({ orderRevision: 10n, ready: true, restarts: 0 });
    expect(await countRunning(testBed)).toBe(1);
  });

  it('does not accept the order that makes it exclusive while its container is being started without a lease', async () => {
    const testBed = new AgentTestBed();
    const start = testBed.runtime.start.bind(testBed.runtime);
    let allowStart = (): void => undefined;
    const startAllowed = new Promise<void>((resolve) => (allowStart = resolve));
    testBed.runtime.start = async (request) => startAllowed.then(() => start(request));
    await testBed.start();
    const order = aStartOrder({ revision: 11n, stopAfterMs: STOP_AFTER_MS });
    testBed.coordinator.sendOrder(aStartOrder());
    await settle();
    testBed.coordinator.sendOrder(order);
    await settle();
    allowStart();
    await settle();
    expect(testBed.requireReport()).toMatchObject({ orderRevision: 10n, ready: true });
    testBed.coordinator.sendOrder(order);
    await settle();
    expect(testBed.requireReport()).toMatchObject({ orderRevision: 11n, ready: true });
    await testBed.kill();
    await testBed.clock.advance(STOP_AFTER_MS);
    expect(await countRunning(testBed)).toBe(0);
  });
});

describe('exclusive replica whose network proxy answers late before its start', () => {
  it('is stopped stop_after after the last contact', async () => {
    const testBed = createSlowNetworkTestBed();
    await testBed.start();
    testBed.coordinator.answersPings = false;
    testBed.coordinator.sendOrder(aStartOrder({ stopAfterMs: STOP_AFTER_MS }));
    await testBed.clock.advance(4_000);
    expect(await countRunning(testBed)).toBe(1);
    await testBed.clock.advance(STOP_AFTER_MS - 4_000);
    expect(await countRunning(testBed)).toBe(0);
  });

  it('is not started after the end of its lease until a coordinator repeats the order', async () => {
    const testBed = createSlowNetworkTestBed();
    const order = aStartOrder({ stopAfterMs: 3_000 });
    await testBed.start();
    testBed.coordinator.answersPings = false;
    testBed.coordinator.sendOrder(order);
    await testBed.clock.advance(60_000);
    expect(testBed.machine.startCount).toBe(0);
    testBed.coordinator.answersPings = true;
    await testBed.clock.advance(5_000);
    expect(testBed.requireReport()).toMatchObject({
      ready: false,
      reason: expect.stringContaining('without contact with a coordinator'),
    });
    testBed.coordinator.sendOrder(order);
    await testBed.clock.advance(4_000);
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: true, restarts: 0 });
    expect(testBed.machine.startCount).toBe(1);
  });

  it('is not started after a stop order during that wait', async () => {
    const testBed = createSlowNetworkTestBed();
    await testBed.start();
    testBed.coordinator.sendOrder(aStartOrder({ stopAfterMs: STOP_AFTER_MS }));
    await settle();
    testBed.coordinator.sendOrder(aStopOrder());
    await testBed.clock.advance(4_000);
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'STOPPED' });
    expect(testBed.machine.startCount).toBe(0);
  });

  it('is stopped by an order that follows a start with unknown outcome', async () => {
    const testBed = createSlowNetworkTestBed();
    const { runtime } = testBed;
    const calls: string[] = [];
    testBed.runtime = Object.assign(Object.create(runtime) as FakeRuntime, {
      start: async (): Promise<never> => {
        calls.push('start');
        throw new CloudlessError('unavailable', 'the connection to the runtime broke');
      },
      stop: async (...args: Parameters<FakeRuntime['stop']>) => {
        calls.push('stop');
        return runtime.stop(...args);
      },
    });
    await testBed.start();
    testBed.coordinator.sendOrder(aStartOrder({ stopAfterMs: STOP_AFTER_MS }));
    await testBed.clock.advance(5_000); // the second attempt waits for the network proxy
    testBed.coordinator.sendOrder(aStopOrder());
    await testBed.clock.advance(5_000);
    expect(calls).toEqual(['start', 'stop']);
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'STOPPED' });
  });

  it('is not started by an agent that stops during that wait', async () => {
    const testBed = createSlowNetworkTestBed();
    await testBed.start();
    testBed.coordinator.sendOrder(aStartOrder({ stopAfterMs: STOP_AFTER_MS }));
    await settle();
    await testBed.stop();
    expect(testBed.machine.startCount).toBe(0);
  });
});

describe('exclusive replica whose start is refused after its lease has ended', () => {
  it('starts only when a coordinator repeats the order', async () => {
    const testBed = new AgentTestBed();
    const order = aStartOrder({ stopAfterMs: STOP_AFTER_MS });
    const { runtime } = testBed;
    let refused = 0;
    const refuseLate = async (): Promise<never> => {
      await sleep(testBed.clock, STOP_AFTER_MS);
      refused += 1;
      throw new CloudlessError('unavailable', 'lease: ended before the process was started');
    };
    testBed.runtime = Object.assign(Object.create(runtime) as FakeRuntime, { start: refuseLate });
    await testBed.start();
    testBed.coordinator.answersPings = false;
    testBed.coordinator.sendOrder(order);
    await testBed.clock.advance(60_000);
    testBed.coordinator.answersPings = true;
    await testBed.clock.advance(5_000);
    expect(refused).toBe(1);
    expect(testBed.requireReport()).toMatchObject({
      ready: false,
      reason: expect.stringContaining('starts when a coordinator repeats the order'),
    });
    testBed.runtime.start = runtime.start.bind(runtime);
    testBed.coordinator.sendOrder(order);
    await settle();
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: true, restarts: 0 });
  });
});
