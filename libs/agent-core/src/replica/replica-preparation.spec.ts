import { CloudlessError, type Clock } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import { durationMs } from '@bufbuild/protobuf/wkt';
import { ImagePull_Policy, ImagePullStatus_Phase, RestartPolicy_Policy } from '@cloudless/api';
import type { ContainerRequest } from '@cloudless/runtime';
import { createFakeRuntime } from '@cloudless/runtime/testing';
import { aForgetOrder, aStartOrder, aStopOrder, AgentTestBed } from '../testing/index.js';

const IMAGE = 'nginx:alpine';
const PULL_MS = 5_000;
const runtimeFor = (clock: Clock) =>
  createFakeRuntime({ clock, capabilities: ['runtime.process', 'runtime.cri', 'exec.tty'] });

const begin = async (): Promise<AgentTestBed> => {
  const world = new AgentTestBed();
  world.runtime = runtimeFor(world.clock);
  world.machine.images.set(IMAGE, { pullMs: PULL_MS, sizeBytes: 7_000 });
  await world.start();
  return world;
};
const order = async (
  world: AgentTestBed,
  replicaId = 'web-1',
  spec: object = {},
): Promise<void> => {
  world.coordinator.sendOrder(
    aStartOrder({ replicaId, spec: { image: IMAGE, command: [], ...spec } }),
  );
  await settle();
};
const pullOf = (world: AgentTestBed, replicaId = 'web-1') => {
  const { imagePull } = world.requireReport(replicaId);
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
/** Stops the replica with a grace of 0. */
const stopNow = async (world: AgentTestBed): Promise<void> => {
  world.coordinator.sendOrder(aStopOrder({ preStopMs: 0, graceMs: 0 }));
  await settle();
};

describe('start with a missing image', () => {
  it('pulls the image first and reports the pull with start time and duration', async () => {
    const world = await begin();
    await order(world);
    expect(world.summarizeReport()).toEqual({
      phase: 'STARTING',
      ready: false,
      restarts: 0,
      reason: `pulling ${IMAGE}`,
    });
    expect(pullOf(world)).toEqual({ image: IMAGE, phase: 'PULLING' });
    await world.clock.advance(PULL_MS);
    expect(world.summarizeReport()).toEqual({
      phase: 'RUNNING',
      ready: true,
      restarts: 0,
      reason: '',
    });
    expect(pullOf(world)).toEqual({
      image: IMAGE,
      phase: 'PULLED',
      tookMs: PULL_MS,
      sizeBytes: 7_000n,
    });
  });

  it('holds no slot of the start queue during the pull', async () => {
    const world = new AgentTestBed();
    world.runtime = runtimeFor(world.clock);
    world.startConcurrency = 1;
    for (const name of ['slow:1', 'slow:2', 'slow:3'])
      world.machine.images.set(name, { pullMs: 1e9 });
    await world.start();
    for (const [index, image] of ['slow:1', 'slow:2', 'slow:3'].entries())
      await order(world, `slow-${index}`, { image });
    world.coordinator.sendOrder(aStartOrder({ replicaId: 'process-1' }));
    await order(world, 'cached-1', { image: 'there:1' });
    expect([
      world.summarizeReport('process-1')?.ready,
      world.summarizeReport('cached-1')?.ready,
    ]).toEqual([true, true]);
    expect(world.agent.replicas.startsWaiting).toBe(0);
  });

  it('pulls a present image only with policy ALWAYS, at each start', async () => {
    const world = await begin();
    await order(world);
    await world.clock.advance(PULL_MS);
    await order(world, 'web-2');
    expect([world.summarizeReport('web-2')?.ready, pullOf(world, 'web-2')]).toEqual([
      true,
      undefined,
    ]);
    await order(world, 'web-3', { imagePull: { policy: ImagePull_Policy.ALWAYS } });
    expect(pullOf(world, 'web-3')).toMatchObject({ phase: 'PULLING' });
    expect(world.machine.images.pulled).toEqual([IMAGE, IMAGE]);
  });

  it('aborts the pull when the replica is stopped, and never starts it', async () => {
    const world = await begin();
    await order(world);
    await stopNow(world);
    expect(world.summarizeReport()).toMatchObject({ phase: 'STOPPED', reason: 'scaled down' });
    await world.clock.advance(10 * PULL_MS);
    expect(world.machine.startCount).toBe(0);
    world.coordinator.sendOrder(aForgetOrder());
    await settle();
    expect(world.requireReport()).toMatchObject({ forgotten: true });
  });

  it('stops the replica although the runtime ignores the abort', async () => {
    const world = await begin();
    let done: () => void = () => undefined;
    world.runtime.prepare = () => new Promise((resolve) => (done = resolve));
    await order(world);
    await stopNow(world);
    done();
    await world.clock.advance(PULL_MS);
    expect([world.summarizeReport()?.phase, world.machine.startCount]).toEqual(['STOPPED', 0]);
  });

  it('pulls again after a restart of the agent in the middle of a pull', async () => {
    const world = await begin();
    await order(world);
    await world.restart();
    await world.clock.advance(100); // as for any start that did not complete
    expect(world.summarizeReport()).toMatchObject({
      phase: 'STARTING',
      reason: `pulling ${IMAGE}`,
    });
    await world.clock.advance(PULL_MS);
    expect(world.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: true });
    expect([world.machine.images.pulled, world.machine.startCount]).toEqual([[IMAGE, IMAGE], 1]);
  });
});

describe('failed image pull', () => {
  const failing = async (failure: CloudlessError): Promise<AgentTestBed> => {
    const world = await begin();
    world.machine.images.set(IMAGE, { pullMs: 10, failure });
    await order(world);
    await world.clock.advance(10);
    return world;
  };

  it('counts as a failed start with the message of the registry and growing back-off', async () => {
    const world = await failing(new CloudlessError('precondition', 'nginx:alpine: not found'));
    const failed = { image: IMAGE, phase: 'FAILED', tookMs: 10, reason: 'nginx:alpine: not found' };
    expect(world.summarizeReport()).toMatchObject({
      restarts: 1,
      reason: 'nginx:alpine: not found, restarting in 100 ms',
    });
    expect(pullOf(world)).toEqual(failed);
    await world.clock.advance(100);
    expect(world.summarizeReport()).toMatchObject({
      restarts: 1,
      reason: `pulling ${IMAGE} again: nginx:alpine: not found`,
    });
    await world.clock.advance(10);
    expect(world.summarizeReport()).toMatchObject({
      restarts: 2,
      reason: 'nginx:alpine: not found, restarting in 200 ms',
    });
    const before = world.machine.images.pulled.length;
    await world.clock.advance(60 * 60_000);
    expect(world.machine.images.pulled.length - before).toBeLessThan(25);
    expect(world.machine.startCount).toBe(0);
    world.machine.images.set(IMAGE);
    await world.clock.advance(5 * 60_000);
    expect(world.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: true, reason: '' });
  });

  it('is retried soon without counting as a failure when the runtime was unavailable', async () => {
    const world = await failing(new CloudlessError('unavailable', 'nobody answers'));
    expect(world.summarizeReport()).toMatchObject({
      restarts: 0,
      reason: 'nobody answers, trying again in 500 ms',
    });
    world.machine.images.set(IMAGE);
    await world.clock.advance(500);
    expect(world.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: true, restarts: 0 });
  });

  it('is logged once per cause, not at each attempt', async () => {
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

  it('leaves nothing that delays a later stop', async () => {
    const world = await failing(new CloudlessError('unavailable', 'nobody answers'));
    world.runtime.stop = async () => {
      throw new CloudlessError('unavailable', 'nobody answers');
    };
    await stopNow(world);
    expect(world.summarizeReport()).toMatchObject({ phase: 'STOPPED' });
  });

  it('with policy NEVER reports that the image is missing', async () => {
    const world = await begin();
    await order(world, 'web-1', { imagePull: { policy: ImagePull_Policy.NEVER } });
    expect(world.summarizeReport()?.reason).toBe(
      `image ${IMAGE} is not on this node, and is never pulled, restarting in 100 ms`,
    );
    expect(world.machine.images.pulled).toEqual([]);
  });
});

describe('start without an answer of the runtime, after its image was pulled', () => {
  it('is stopped by the runtime, also while the runtime prepares it again', async () => {
    const world = await begin();
    world.machine.images.set(IMAGE);
    world.machine.failNextStart(new CloudlessError('unavailable', 'no answer'));
    await order(world, 'web-1', { imagePull: { policy: ImagePull_Policy.ALWAYS } });
    await world.clock.advance(0);
    world.machine.images.set(IMAGE, { pullMs: PULL_MS });
    await world.clock.advance(500);
    expect(world.summarizeReport()?.reason).toBe(`pulling ${IMAGE}`);
    const stopped: string[] = [];
    const stop = world.runtime.stop.bind(world.runtime);
    world.runtime.stop = (containerId, graceMs) => {
      stopped.push(containerId);
      return stop(containerId, graceMs);
    };
    await stopNow(world);
    expect([stopped.length, world.summarizeReport()?.phase]).toEqual([1, 'STOPPED']);
  });

  it('does not run beside another container when its image becomes unavailable', async () => {
    const world = await begin();
    const ALWAYS = { imagePull: { policy: ImagePull_Policy.ALWAYS } };
    world.machine.images.set(IMAGE);
    const late = loseAnswer(world);
    await order(world, 'web-1', ALWAYS);
    world.machine.images.set(IMAGE, {
      failure: new CloudlessError('precondition', 'no such registry'),
    });
    await world.clock.advance(500);
    expect(world.summarizeReport()?.reason).toContain('no such registry');
    world.machine.images.set(IMAGE);
    await late();
    await world.clock.advance(1_000);
    expect(world.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: true });
    expect([running(world).length, world.machine.startCount]).toEqual([1, 1]);
  });

  it('is not prepared or started again when it turns out to run', async () => {
    const world = await begin();
    world.machine.images.set(IMAGE);
    const late = loseAnswer(world);
    await order(world, 'web-1', { imagePull: { policy: ImagePull_Policy.ALWAYS } });
    world.machine.images.set(IMAGE, { pullMs: PULL_MS });
    await world.clock.advance(500);
    expect(world.summarizeReport()?.reason).toContain('pulling');
    world.machine.images.set(IMAGE);
    await late();
    expect(world.summarizeReport()).toMatchObject({ phase: 'RUNNING' });
    let asked = 0;
    world.runtime.start = () =>
      Promise.reject(new CloudlessError('internal', `asked ${(asked += 1)} times`));
    await world.clock.advance(2 * PULL_MS);
    expect([asked, running(world).length]).toEqual([0, 1]);
  });

  it('leaves no running container when it is never retried', async () => {
    const world = await begin();
    world.machine.images.set(IMAGE);
    const late = loseAnswer(world);
    const restart = { policy: RestartPolicy_Policy.NEVER };
    await order(world, 'web-1', { imagePull: { policy: ImagePull_Policy.ALWAYS }, restart });
    world.machine.images.set(IMAGE, {
      failure: new CloudlessError('precondition', 'no such registry'),
    });
    await world.clock.advance(500);
    expect(world.summarizeReport()).toMatchObject({ phase: 'FAILED' });
    world.machine.images.set(IMAGE);
    await late();
    await world.clock.advance(1_000);
    expect(running(world)).toEqual([]);
  });

  it('is reported when it completes after its replica was forgotten, and the coordinator stops it', async () => {
    const world = await begin();
    const late = loseAnswer(world);
    await order(world, 'web-1', { image: 'there:1' });
    await stopNow(world);
    world.coordinator.sendOrder(aForgetOrder());
    await settle();
    expect(world.requireReport()).toMatchObject({ forgotten: true });
    await late();
    expect(world.requireReport()).toMatchObject({
      forgotten: false,
      containerId: running(world)[0],
    });
    world.coordinator.sendOrder(aForgetOrder());
    await world.clock.advance(60_000);
    expect(world.machine.statuses()).toEqual([]);
  });

  it('does not run beside the container of the next agent when the agent was killed', async () => {
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

/**
 * The next start gets no answer; the container begins only when the returned function is called.
 */
function loseAnswer(world: AgentTestBed): () => Promise<void> {
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

const running = (world: AgentTestBed): readonly string[] =>
  world.machine
    .statuses()
    .flatMap(({ phase, containerId }) => (phase === 'running' ? [containerId] : []));
