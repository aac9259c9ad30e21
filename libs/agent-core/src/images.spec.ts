import { CloudlessError, type Clock } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import { durationMs } from '@bufbuild/protobuf/wkt';
import { ImagePull_Policy, ImagePullStatus_Phase, RestartPolicy_Policy } from '@cloudless/api';
import type { ContainerRequest } from '@cloudless/runtime';
import { createFakeRuntime } from '@cloudless/runtime/testing';
import { aForgetOrder, aStartOrder, aStopOrder, AgentWorld } from './testing/index.js';

const IMAGE = 'nginx:alpine';
const PULL_MS = 5_000;
const runtimeFor = (clock: Clock) =>
  createFakeRuntime({ clock, capabilities: ['runtime.process', 'runtime.cri', 'exec.tty'] });

const begin = async (): Promise<AgentWorld> => {
  const world = new AgentWorld();
  world.runtime = runtimeFor(world.clock);
  world.machine.images.set(IMAGE, { pullMs: PULL_MS, sizeBytes: 7_000 });
  await world.start();
  return world;
};
const order = async (world: AgentWorld, replicaId = 'web-1', spec: object = {}): Promise<void> => {
  world.coordinator.order(aStartOrder({ replicaId, spec: { image: IMAGE, command: [], ...spec } }));
  await settle();
};
const pullOf = (world: AgentWorld, replicaId = 'web-1') => {
  const { imagePull } = world.report(replicaId);
  if (imagePull === undefined) return undefined;
  const { image, phase, took, sizeBytes, reason } = imagePull;
  return {
    image,
    phase: ImagePullStatus_Phase[phase],
    ...(took === undefined ? {} : { tookMs: durationMs(took) }),
    ...(sizeBytes === 0n ? {} : { sizeBytes }),
    ...(reason === '' ? {} : { reason }),
  };
};
/** The next of these ends as ordered, without the grace of the process. */
const stopNow = async (world: AgentWorld): Promise<void> => {
  world.coordinator.order(aStopOrder({ preStopMs: 0, graceMs: 0 }));
  await settle();
};

describe('an image that is not there', () => {
  it('is pulled first, and that is told: what, since when, how long it took', async () => {
    const world = await begin();
    await order(world);
    expect(world.seen()).toEqual({
      phase: 'STARTING',
      ready: false,
      restarts: 0,
      reason: `pulling ${IMAGE}`,
    });
    expect(pullOf(world)).toEqual({ image: IMAGE, phase: 'PULLING' });
    await world.clock.advance(PULL_MS);
    expect(world.seen()).toEqual({ phase: 'RUNNING', ready: true, restarts: 0, reason: '' });
    expect(pullOf(world)).toEqual({
      image: IMAGE,
      phase: 'PULLED',
      tookMs: PULL_MS,
      sizeBytes: 7_000n,
    });
  });

  it('takes no turn of the others: a slow registry holds up nobody else', async () => {
    const world = new AgentWorld();
    world.runtime = runtimeFor(world.clock);
    world.startConcurrency = 1;
    for (const name of ['slow:1', 'slow:2', 'slow:3'])
      world.machine.images.set(name, { pullMs: 1e9 });
    await world.start();
    for (const [index, image] of ['slow:1', 'slow:2', 'slow:3'].entries())
      await order(world, `slow-${index}`, { image });
    world.coordinator.order(aStartOrder({ replicaId: 'process-1' }));
    await order(world, 'cached-1', { image: 'there:1' });
    expect([world.seen('process-1')?.ready, world.seen('cached-1')?.ready]).toEqual([true, true]);
    expect(world.agent.replicas.startsWaiting).toBe(0);
  });

  it('is not pulled again when it is there; and is with policy ALWAYS, for each start', async () => {
    const world = await begin();
    await order(world);
    await world.clock.advance(PULL_MS);
    await order(world, 'web-2');
    expect([world.seen('web-2')?.ready, pullOf(world, 'web-2')]).toEqual([true, undefined]);
    await order(world, 'web-3', { imagePull: { policy: ImagePull_Policy.ALWAYS } });
    expect(pullOf(world, 'web-3')).toMatchObject({ phase: 'PULLING' });
    expect(world.machine.images.pulled).toEqual([IMAGE, IMAGE]);
  });

  it('lets go of the pull when the replica is to stop, and never starts it', async () => {
    const world = await begin();
    await order(world);
    await stopNow(world);
    expect(world.seen()).toMatchObject({ phase: 'STOPPED', reason: 'scaled down' });
    await world.clock.advance(10 * PULL_MS);
    expect(world.machine.startCount).toBe(0);
    world.coordinator.order(aForgetOrder());
    await settle();
    expect(world.report()).toMatchObject({ forgotten: true });
  });

  it('is let go of also by a runtime that does not heed it', async () => {
    const world = await begin();
    let done: () => void = () => undefined;
    world.runtime.prepare = () => new Promise((resolve) => (done = resolve));
    await order(world);
    await stopNow(world);
    done();
    await world.clock.advance(PULL_MS);
    expect([world.seen()?.phase, world.machine.startCount]).toEqual(['STOPPED', 0]);
  });

  it('is pulled by the next agent when this one ends in the middle', async () => {
    const world = await begin();
    await order(world);
    await world.restart();
    await world.clock.advance(100); // as for any start that did not come to an end
    expect(world.seen()).toMatchObject({ phase: 'STARTING', reason: `pulling ${IMAGE}` });
    await world.clock.advance(PULL_MS);
    expect(world.seen()).toMatchObject({ phase: 'RUNNING', ready: true });
    expect([world.machine.images.pulled, world.machine.startCount]).toEqual([[IMAGE, IMAGE], 1]);
  });
});

describe('a pull that fails', () => {
  const failing = async (failure: CloudlessError): Promise<AgentWorld> => {
    const world = await begin();
    world.machine.images.set(IMAGE, { pullMs: 10, failure });
    await order(world);
    await world.clock.advance(10);
    return world;
  };

  it("is a failed start with the registry's words and a growing back-off", async () => {
    const world = await failing(new CloudlessError('precondition', 'nginx:alpine: not found'));
    const failed = { image: IMAGE, phase: 'FAILED', tookMs: 10, reason: 'nginx:alpine: not found' };
    expect(world.seen()).toMatchObject({
      restarts: 1,
      reason: 'nginx:alpine: not found, restarting in 100 ms',
    });
    expect(pullOf(world)).toEqual(failed);
    await world.clock.advance(100);
    expect(world.seen()).toMatchObject({
      restarts: 1,
      reason: `pulling ${IMAGE} again: nginx:alpine: not found`,
    });
    await world.clock.advance(10);
    expect(world.seen()).toMatchObject({
      restarts: 2,
      reason: 'nginx:alpine: not found, restarting in 200 ms',
    });
    const before = world.machine.images.pulled.length;
    await world.clock.advance(60 * 60_000);
    expect(world.machine.images.pulled.length - before).toBeLessThan(25);
    expect(world.machine.startCount).toBe(0);
    world.machine.images.set(IMAGE);
    await world.clock.advance(5 * 60_000);
    expect(world.seen()).toMatchObject({ phase: 'RUNNING', ready: true, reason: '' });
  });

  it('as the runtime went away is tried again soon, and is no failure of the replica', async () => {
    const world = await failing(new CloudlessError('unavailable', 'nobody answers'));
    expect(world.seen()).toMatchObject({
      restarts: 0,
      reason: 'nobody answers, trying again in 500 ms',
    });
    world.machine.images.set(IMAGE);
    await world.clock.advance(500);
    expect(world.seen()).toMatchObject({ phase: 'RUNNING', ready: true, restarts: 0 });
  });

  it('is logged when it is news, not with each try', async () => {
    const world = await begin();
    const warnings: string[] = [];
    await world.stop();
    world.log = { ...world.log, warn: (message) => warnings.push(message), child: () => world.log };
    await world.start();
    world.runtime.prepare = () =>
      Promise.reject(new CloudlessError('unavailable', 'nobody answers'));
    await order(world);
    await world.clock.advance(10_000);
    expect(warnings).toEqual(['container not prepared']);
  });

  it('leaves nothing that a stop had to wait for', async () => {
    const world = await failing(new CloudlessError('unavailable', 'nobody answers'));
    world.runtime.stop = async () => {
      throw new CloudlessError('unavailable', 'nobody answers');
    };
    await stopNow(world);
    expect(world.seen()).toMatchObject({ phase: 'STOPPED' });
  });

  it('with policy NEVER says that it is not there', async () => {
    const world = await begin();
    await order(world, 'web-1', { imagePull: { policy: ImagePull_Policy.NEVER } });
    expect(world.seen()?.reason).toBe(
      `image ${IMAGE} is not on this node, and is never pulled, restarting in 100 ms`,
    );
    expect(world.machine.images.pulled).toEqual([]);
  });
});

describe('a start after its image', () => {
  it('may run although nobody answered: it is stopped by the runtime, also when that is preparing it again', async () => {
    const world = await begin();
    world.machine.images.set(IMAGE);
    world.machine.failNextStart(new CloudlessError('unavailable', 'no answer'));
    await order(world, 'web-1', { imagePull: { policy: ImagePull_Policy.ALWAYS } });
    await world.clock.advance(0);
    world.machine.images.set(IMAGE, { pullMs: PULL_MS });
    await world.clock.advance(500);
    expect(world.seen()?.reason).toBe(`pulling ${IMAGE}`);
    const stopped: string[] = [];
    const stop = world.runtime.stop.bind(world.runtime);
    world.runtime.stop = (containerId, graceMs) => {
      stopped.push(containerId);
      return stop(containerId, graceMs);
    };
    await stopNow(world);
    expect([stopped.length, world.seen()?.phase]).toEqual([1, 'STOPPED']);
  });

  it('that had no answer, and whose image cannot be had now, does not run beside another one', async () => {
    const world = await begin();
    const ALWAYS = { imagePull: { policy: ImagePull_Policy.ALWAYS } };
    world.machine.images.set(IMAGE);
    const late = loseAnswer(world);
    await order(world, 'web-1', ALWAYS);
    world.machine.images.set(IMAGE, {
      failure: new CloudlessError('precondition', 'no such registry'),
    });
    await world.clock.advance(500);
    expect(world.seen()?.reason).toContain('no such registry');
    world.machine.images.set(IMAGE);
    await late();
    await world.clock.advance(1_000);
    expect(world.seen()).toMatchObject({ phase: 'RUNNING', ready: true });
    expect([running(world).length, world.machine.startCount]).toEqual([1, 1]);
  });

  it('that had no answer and runs by now is not prepared or asked for again', async () => {
    const world = await begin();
    world.machine.images.set(IMAGE);
    const late = loseAnswer(world);
    await order(world, 'web-1', { imagePull: { policy: ImagePull_Policy.ALWAYS } });
    world.machine.images.set(IMAGE, { pullMs: PULL_MS });
    await world.clock.advance(500);
    expect(world.seen()?.reason).toContain('pulling');
    world.machine.images.set(IMAGE);
    await late();
    expect(world.seen()).toMatchObject({ phase: 'RUNNING' });
    let asked = 0;
    world.runtime.start = () =>
      Promise.reject(new CloudlessError('internal', `asked ${(asked += 1)} times`));
    await world.clock.advance(2 * PULL_MS);
    expect([asked, running(world).length]).toEqual([0, 1]);
  });

  it('that had no answer, and is never tried again, leaves nothing that runs', async () => {
    const world = await begin();
    world.machine.images.set(IMAGE);
    const late = loseAnswer(world);
    const restart = { policy: RestartPolicy_Policy.NEVER };
    await order(world, 'web-1', { imagePull: { policy: ImagePull_Policy.ALWAYS }, restart });
    world.machine.images.set(IMAGE, {
      failure: new CloudlessError('precondition', 'no such registry'),
    });
    await world.clock.advance(500);
    expect(world.seen()).toMatchObject({ phase: 'FAILED' });
    world.machine.images.set(IMAGE);
    await late();
    await world.clock.advance(1_000);
    expect(running(world)).toEqual([]);
  });

  it('that runs after its replica was forgotten is told to the coordinator, which ends it', async () => {
    const world = await begin();
    const late = loseAnswer(world);
    await order(world, 'web-1', { image: 'there:1' });
    await stopNow(world);
    world.coordinator.order(aForgetOrder());
    await settle();
    expect(world.report()).toMatchObject({ forgotten: true });
    await late();
    expect(world.report()).toMatchObject({ forgotten: false, containerId: running(world)[0] });
    world.coordinator.order(aForgetOrder());
    await world.clock.advance(60_000);
    expect(world.machine.statuses()).toEqual([]);
  });

  it('of an agent that was killed does not run beside that of the next agent', async () => {
    const world = await begin();
    world.machine.images.set(IMAGE);
    let request: ContainerRequest | undefined;
    world.runtime.start = (given) => {
      request = given;
      return new Promise(() => undefined);
    };
    await order(world);
    await world.restart();
    await world.clock.advance(1_000);
    const [current] = running(world);
    if (request === undefined || current === undefined) throw new Error('nothing was started');
    await world.runtime.start(request);
    await world.clock.advance(1_000);
    expect(running(world)).toEqual([current]);
    expect(world.machine.statuses().map(({ containerId }) => containerId)).toEqual([current]);
  });
});

/** The next start has no answer, and begins only when what is returned is called. */
function loseAnswer(world: AgentWorld): () => Promise<void> {
  const start = world.runtime.start.bind(world.runtime);
  let late: () => Promise<unknown> = () => Promise.resolve();
  world.runtime.start = (request) => {
    world.runtime.start = start;
    late = () => start(request);
    return Promise.reject(new CloudlessError('unavailable', 'no answer'));
  };
  return async () => {
    await late();
    await settle();
  };
}

const running = (world: AgentWorld): readonly string[] =>
  world.machine
    .statuses()
    .flatMap(({ phase, containerId }) => (phase === 'running' ? [containerId] : []));
