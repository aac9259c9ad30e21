import { CloudlessError, toContainerId } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import { toBehaviourCommand } from '@cloudless/runtime/testing';
import { aStartOrder, aStopOrder, AgentTestBed } from '../testing/index.js';

const STOP_AFTER_MS = 10_000;

/** A running exclusive replica with contact to its coordinator. */
async function anExclusiveWorld(spec: object = {}): Promise<AgentTestBed> {
  const world = new AgentTestBed();
  await world.start();
  world.coordinator.sendOrder(aStartOrder({ stopAfterMs: STOP_AFTER_MS, spec }));
  await settle();
  expect(world.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: true });
  return world;
}

/** Number of containers that run on the machine, independent of the agent's state. */
async function running(world: AgentTestBed): Promise<number> {
  return world.machine.statuses().filter(({ phase }) => phase === 'running').length;
}

describe('exclusive replica', () => {
  it('keeps running while pings are answered', async () => {
    const world = await anExclusiveWorld();
    await world.clock.advance(10 * STOP_AFTER_MS);
    expect(world.summarizeReport()).toMatchObject({ ready: true, restarts: 0 });
    expect(world.machine.startCount).toBe(1);
  });

  it.each([
    [
      'the network goes silent',
      (world: AgentTestBed) => void (world.coordinator.answersPings = false),
    ],
    [
      'the coordinator is gone',
      (world: AgentTestBed) => {
        world.coordinator.reachable = false;
        world.coordinator.dropConnections();
      },
    ],
    [
      'the node is heard and not counted as alive',
      (world: AgentTestBed) => {
        world.coordinator.admitsNodes = false;
        world.coordinator.dropConnections();
      },
    ],
  ])('is stopped stop_after after the last contact when %s', async (_what, cut) => {
    const world = await anExclusiveWorld();
    await world.clock.advance(900); // the newest ping was sent now
    cut(world);
    await world.clock.advance(STOP_AFTER_MS - 1_000);
    expect(await running(world)).toBe(1);
    await world.clock.advance(1_000);
    expect(await running(world)).toBe(0);
    await world.clock.advance(3_600_000);
    expect(world.machine.startCount).toBe(1);
  });

  it('is stopped although its agent was killed, and started by the next agent only after a repeated order', async () => {
    const world = await anExclusiveWorld();
    await world.kill();
    await world.clock.advance(STOP_AFTER_MS);
    expect(await running(world)).toBe(0);
    await world.start();
    await world.clock.advance(60_000);
    expect(world.requireReport()).toMatchObject({ orderRevision: 0n, ready: false, restarts: 1 });
    expect(world.requireReport().reason).toBe(
      'exclusive: without contact with a coordinator for too long; starts when a coordinator repeats the order',
    );
    expect(world.machine.startCount).toBe(1);
    world.coordinator.sendOrder(aStartOrder({ stopAfterMs: STOP_AFTER_MS }));
    await settle();
    expect(world.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: true, restarts: 1 });
  });

  it('is killed within twice stop_after, whatever its grace period', async () => {
    const world = await anExclusiveWorld({ terminationGracePeriod: { seconds: 3_600n } });
    const [container] = world.machine.statuses();
    expect(world.machine.requireRequest(toContainerId(container?.containerId ?? ''))).toMatchObject(
      {
        lease: { graceMs: STOP_AFTER_MS },
      },
    );
  });

  it('has its full grace period for an ordered stop while there is contact', async () => {
    const command = [...toBehaviourCommand([{ step: 'ignoreTerm' }, { step: 'hold' }])];
    const world = await anExclusiveWorld({ command, terminationGracePeriod: { seconds: 3_600n } });
    world.coordinator.sendOrder(aStopOrder());
    await world.clock.advance(4 * STOP_AFTER_MS);
    expect(await running(world)).toBe(1);
    world.coordinator.reachable = false;
    world.coordinator.dropConnections();
    await world.clock.advance(2 * STOP_AFTER_MS);
    expect(await running(world)).toBe(0);
  });

  it('starts again after a repeated order, and is removed when it was replaced', async () => {
    for (const wanted of [true, false]) {
      const world = await anExclusiveWorld();
      world.coordinator.reachable = false;
      world.coordinator.dropConnections();
      await world.clock.advance(STOP_AFTER_MS);
      world.coordinator.reachable = true;
      await world.clock.advance(5_000);
      expect(world.requireReport()).toMatchObject({ orderRevision: 0n, ready: false });
      world.coordinator.sendOrder(
        wanted ? aStartOrder({ stopAfterMs: STOP_AFTER_MS }) : aStopOrder(),
      );
      await settle();
      expect(world.summarizeReport()?.phase).toBe(wanted ? 'RUNNING' : 'STOPPED');
      expect(await running(world)).toBe(wanted ? 1 : 0);
    }
  });

  it('is restarted in place after a crash while there is contact, and not without contact', async () => {
    const world = await anExclusiveWorld();
    world.machine.exit(toContainerId(world.requireReport().containerId), 1);
    await world.clock.advance(100);
    expect(world.summarizeReport()).toMatchObject({ ready: true, restarts: 1 });
    world.coordinator.reachable = false;
    world.coordinator.dropConnections();
    await world.clock.advance(STOP_AFTER_MS - 1_000);
    world.machine.exit(toContainerId(world.requireReport().containerId), 1);
    await world.clock.advance(500); // the last contact is less than stop_after ago
    expect(await running(world)).toBe(1);
    await world.clock.advance(STOP_AFTER_MS);
    expect(await running(world)).toBe(0);
  });

  it('is not started after a restart of the agent without contact', async () => {
    const world = await anExclusiveWorld();
    world.machine.exit(toContainerId(world.requireReport().containerId), 1);
    world.coordinator.reachable = false;
    await world.restart();
    await world.clock.advance(60_000);
    expect(world.machine.startCount).toBe(1);
  });

  it('becomes exclusive and non-exclusive by updates without a restart', async () => {
    const world = await anExclusiveWorld();
    world.coordinator.sendOrder(aStartOrder({ revision: 11n }));
    await settle();
    expect(world.requireReport()).toMatchObject({ orderRevision: 11n, ready: true });
    world.coordinator.answersPings = false;
    await world.clock.advance(3 * STOP_AFTER_MS);
    expect(await running(world)).toBe(1);
    world.coordinator.answersPings = true;
    await world.clock.advance(5_000);
    world.coordinator.sendOrder(aStartOrder({ revision: 12n, stopAfterMs: STOP_AFTER_MS }));
    await settle();
    expect(world.requireReport()).toMatchObject({ orderRevision: 12n, ready: true });
    await world.kill();
    await world.clock.advance(STOP_AFTER_MS);
    expect(await running(world)).toBe(0);
    expect(world.machine.startCount).toBe(1);
  });

  it('does not acknowledge an order that makes it exclusive before the coordinator has admitted the node', async () => {
    const world = new AgentTestBed();
    await world.start();
    world.coordinator.sendOrder(aStartOrder());
    await settle();
    world.coordinator.admitsNodes = false;
    await world.restart();
    world.coordinator.sendOrder(aStartOrder({ revision: 12n, stopAfterMs: STOP_AFTER_MS }));
    await settle();
    expect(world.requireReport()).toMatchObject({ orderRevision: 10n, ready: true });
    expect(await running(world)).toBe(1);
  });

  it('gives the container a lease before the exclusive order is stored', async () => {
    const world = new AgentTestBed();
    await world.start();
    world.coordinator.sendOrder(aStartOrder());
    await settle();
    const renew = world.runtime.renew.bind(world.runtime);
    world.runtime.renew = async () =>
      Promise.reject(new CloudlessError('unavailable', 'no connection to the supervisor'));
    world.coordinator.sendOrder(aStartOrder({ revision: 11n, stopAfterMs: STOP_AFTER_MS }));
    await settle();
    expect(world.store.replicas.get('web-1')?.heldRevision).toBe(10n);
    world.runtime.renew = renew;
    world.coordinator.sendOrder(aStartOrder({ revision: 11n, stopAfterMs: STOP_AFTER_MS }));
    await settle();
    expect(world.store.replicas.get('web-1')?.heldRevision).toBe(11n);
  });

  it('removes the lease again when the exclusive order cannot be stored', async () => {
    const world = new AgentTestBed();
    await world.start();
    world.coordinator.sendOrder(aStartOrder());
    await settle();
    world.store.failure = new Error('no space left on device');
    world.coordinator.sendOrder(aStartOrder({ revision: 11n, stopAfterMs: STOP_AFTER_MS }));
    await settle();
    await world.clock.advance(3 * STOP_AFTER_MS);
    expect(world.requireReport()).toMatchObject({ orderRevision: 10n, ready: true, restarts: 0 });
    expect(await running(world)).toBe(1);
  });

  it('delays an exclusive order while the container is being started without a lease', async () => {
    const world = new AgentTestBed();
    const start = world.runtime.start.bind(world.runtime);
    let open = (): void => undefined;
    const opened = new Promise<void>((resolve) => (open = resolve));
    world.runtime.start = async (request) => opened.then(() => start(request));
    await world.start();
    const order = aStartOrder({ revision: 11n, stopAfterMs: STOP_AFTER_MS });
    world.coordinator.sendOrder(aStartOrder());
    await settle();
    world.coordinator.sendOrder(order);
    await settle();
    open();
    await settle();
    expect(world.requireReport()).toMatchObject({ orderRevision: 10n, ready: true });
    world.coordinator.sendOrder(order);
    await settle();
    expect(world.requireReport()).toMatchObject({ orderRevision: 11n, ready: true });
    await world.kill();
    await world.clock.advance(STOP_AFTER_MS);
    expect(await running(world)).toBe(0);
  });
});
