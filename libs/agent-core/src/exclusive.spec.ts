import { CloudlessError, toContainerId } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import { behaviourCommand } from '@cloudless/runtime/testing';
import { aStartOrder, aStopOrder, AgentWorld } from './testing/index.js';

const STOP_AFTER_MS = 10_000;

/** An exclusive replica that runs, in contact with its coordinator. */
async function anExclusiveWorld(spec: object = {}): Promise<AgentWorld> {
  const world = new AgentWorld();
  await world.start();
  world.coordinator.order(aStartOrder({ stopAfterMs: STOP_AFTER_MS, spec }));
  await settle();
  expect(world.seen()).toMatchObject({ phase: 'RUNNING', ready: true });
  return world;
}

/** How many containers run on the machine, whatever the agent thinks. */
async function running(world: AgentWorld): Promise<number> {
  return world.machine.statuses().filter(({ phase }) => phase === 'running').length;
}

describe('an exclusive replica', () => {
  it('runs on as long as pings are answered', async () => {
    const world = await anExclusiveWorld();
    await world.clock.advance(10 * STOP_AFTER_MS);
    expect(world.seen()).toMatchObject({ ready: true, restarts: 0 });
    expect(world.machine.startCount).toBe(1);
  });

  it.each([
    [
      'the network goes silent',
      (world: AgentWorld) => void (world.coordinator.answersPings = false),
    ],
    [
      'the coordinator is gone',
      (world: AgentWorld) => {
        world.coordinator.reachable = false;
        world.coordinator.drop();
      },
    ],
    [
      'the node is heard and not counted as alive',
      (world: AgentWorld) => {
        world.coordinator.admits = false;
        world.coordinator.drop();
      },
    ],
  ])('is ended stop_after from the last contact when %s', async (_what, cut) => {
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

  it('is ended also when its agent is dead, and the next agent starts it only when it is told to', async () => {
    const world = await anExclusiveWorld();
    await world.kill();
    await world.clock.advance(STOP_AFTER_MS);
    expect(await running(world)).toBe(0);
    await world.start();
    await world.clock.advance(60_000);
    expect(world.report()).toMatchObject({ orderRevision: 0n, ready: false, restarts: 1 });
    expect(world.report().reason).toBe(
      'exclusive: not started until a coordinator, which was not heard for too long, says so',
    );
    expect(world.machine.startCount).toBe(1);
    world.coordinator.order(aStartOrder({ stopAfterMs: STOP_AFTER_MS }));
    await settle();
    expect(world.seen()).toMatchObject({ phase: 'RUNNING', ready: true, restarts: 1 });
  });

  it('is killed within twice stop_after, however long its own grace is', async () => {
    const world = await anExclusiveWorld({ terminationGracePeriod: { seconds: 3_600n } });
    const [container] = world.machine.statuses();
    expect(world.machine.requestOf(toContainerId(container?.containerId ?? ''))).toMatchObject({
      lease: { graceMs: STOP_AFTER_MS },
    });
  });

  it('has all of its own grace when it is ordered to stop, as long as there is contact', async () => {
    const command = [...behaviourCommand([{ step: 'ignoreTerm' }, { step: 'hold' }])];
    const world = await anExclusiveWorld({ command, terminationGracePeriod: { seconds: 3_600n } });
    world.coordinator.order(aStopOrder());
    await world.clock.advance(4 * STOP_AFTER_MS);
    expect(await running(world)).toBe(1);
    world.coordinator.reachable = false;
    world.coordinator.drop();
    await world.clock.advance(2 * STOP_AFTER_MS);
    expect(await running(world)).toBe(0);
  });

  it('comes back with its coordinator: started again when the order is repeated, gone when it was replaced', async () => {
    for (const wanted of [true, false]) {
      const world = await anExclusiveWorld();
      world.coordinator.reachable = false;
      world.coordinator.drop();
      await world.clock.advance(STOP_AFTER_MS);
      world.coordinator.reachable = true;
      await world.clock.advance(5_000);
      expect(world.report()).toMatchObject({ orderRevision: 0n, ready: false });
      world.coordinator.order(wanted ? aStartOrder({ stopAfterMs: STOP_AFTER_MS }) : aStopOrder());
      await settle();
      expect(world.seen()?.phase).toBe(wanted ? 'RUNNING' : 'STOPPED');
      expect(await running(world)).toBe(wanted ? 1 : 0);
    }
  });

  it('that crashes is restarted in place while there is contact, and not without', async () => {
    const world = await anExclusiveWorld();
    world.machine.exit(toContainerId(world.report().containerId), 1);
    await world.clock.advance(100);
    expect(world.seen()).toMatchObject({ ready: true, restarts: 1 });
    world.coordinator.reachable = false;
    world.coordinator.drop();
    await world.clock.advance(STOP_AFTER_MS - 1_000);
    world.machine.exit(toContainerId(world.report().containerId), 1);
    await world.clock.advance(500); // the last contact is less than stop_after ago
    expect(await running(world)).toBe(1);
    await world.clock.advance(STOP_AFTER_MS);
    expect(await running(world)).toBe(0);
  });

  it('after a restart of its agent without contact nothing is started', async () => {
    const world = await anExclusiveWorld();
    world.machine.exit(toContainerId(world.report().containerId), 1);
    world.coordinator.reachable = false;
    await world.restart();
    await world.clock.advance(60_000);
    expect(world.machine.startCount).toBe(1);
  });

  it('becomes one by an update, and ceases to be one, without a restart', async () => {
    const world = await anExclusiveWorld();
    world.coordinator.order(aStartOrder({ revision: 11n }));
    await settle();
    expect(world.report()).toMatchObject({ orderRevision: 11n, ready: true });
    world.coordinator.answersPings = false;
    await world.clock.advance(3 * STOP_AFTER_MS);
    expect(await running(world)).toBe(1);
    world.coordinator.answersPings = true;
    await world.clock.advance(5_000);
    world.coordinator.order(aStartOrder({ revision: 12n, stopAfterMs: STOP_AFTER_MS }));
    await settle();
    expect(world.report()).toMatchObject({ orderRevision: 12n, ready: true });
    await world.kill();
    await world.clock.advance(STOP_AFTER_MS);
    expect(await running(world)).toBe(0);
    expect(world.machine.startCount).toBe(1);
  });

  it('an order that makes it exclusive is not acknowledged before the coordinator counts the node as alive', async () => {
    const world = new AgentWorld();
    await world.start();
    world.coordinator.order(aStartOrder());
    await settle();
    world.coordinator.admits = false;
    await world.restart();
    world.coordinator.order(aStartOrder({ revision: 12n, stopAfterMs: STOP_AFTER_MS }));
    await settle();
    expect(world.report()).toMatchObject({ orderRevision: 10n, ready: true });
    expect(await running(world)).toBe(1);
  });

  it('an order that makes it exclusive is not written down before its container has a lease', async () => {
    const world = new AgentWorld();
    await world.start();
    world.coordinator.order(aStartOrder());
    await settle();
    const renew = world.runtime.renew.bind(world.runtime);
    world.runtime.renew = async () =>
      Promise.reject(new CloudlessError('unavailable', 'no connection to the supervisor'));
    world.coordinator.order(aStartOrder({ revision: 11n, stopAfterMs: STOP_AFTER_MS }));
    await settle();
    expect(world.store.replicas.get('web-1')?.heldRevision).toBe(10n);
    world.runtime.renew = renew;
    world.coordinator.order(aStartOrder({ revision: 11n, stopAfterMs: STOP_AFTER_MS }));
    await settle();
    expect(world.store.replicas.get('web-1')?.heldRevision).toBe(11n);
  });

  it('an order to be exclusive that cannot be written down leaves the container without a lease', async () => {
    const world = new AgentWorld();
    await world.start();
    world.coordinator.order(aStartOrder());
    await settle();
    world.store.failure = new Error('no space left on device');
    world.coordinator.order(aStartOrder({ revision: 11n, stopAfterMs: STOP_AFTER_MS }));
    await settle();
    await world.clock.advance(3 * STOP_AFTER_MS);
    expect(world.report()).toMatchObject({ orderRevision: 10n, ready: true, restarts: 0 });
    expect(await running(world)).toBe(1);
  });

  it('an order that makes it exclusive waits while its container is being started without a lease', async () => {
    const world = new AgentWorld();
    const start = world.runtime.start.bind(world.runtime);
    let open = (): void => undefined;
    const opened = new Promise<void>((resolve) => (open = resolve));
    world.runtime.start = async (request) => opened.then(() => start(request));
    await world.start();
    const order = aStartOrder({ revision: 11n, stopAfterMs: STOP_AFTER_MS });
    world.coordinator.order(aStartOrder());
    await settle();
    world.coordinator.order(order);
    await settle();
    open();
    await settle();
    expect(world.report()).toMatchObject({ orderRevision: 10n, ready: true });
    world.coordinator.order(order);
    await settle();
    expect(world.report()).toMatchObject({ orderRevision: 11n, ready: true });
    await world.kill();
    await world.clock.advance(STOP_AFTER_MS);
    expect(await running(world)).toBe(0);
  });
});
