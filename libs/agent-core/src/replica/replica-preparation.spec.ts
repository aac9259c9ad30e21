import { durationMs } from '@bufbuild/protobuf/wkt';
import { CloudlessError, toContainerId, type Clock } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import { ImagePull_Policy, ImagePullStatus_Phase, RestartPolicy_Policy } from '@cloudless/api';
import type { ContainerRequest } from '@cloudless/runtime';
import { createFakeRuntime } from '@cloudless/runtime/testing';
import { aForgetOrder, aStartOrder, aStopOrder, AgentTestBed } from '../testing/index.js';

const IMAGE = 'nginx:alpine';
const PULL_MS = 5_000;
const runtimeFor = (clock: Clock) =>
  createFakeRuntime({ clock, capabilities: ['runtime.process', 'runtime.cri', 'exec.tty'] });

const createTestBed = async (): Promise<AgentTestBed> => {
  const testBed = new AgentTestBed();
  testBed.runtime = runtimeFor(testBed.clock);
  testBed.machine.images.set(IMAGE, { pullMs: PULL_MS, sizeBytes: 7_000 });
  await testBed.start();
  return testBed;
};
const startReplica = async (
  testBed: AgentTestBed,
  replicaId = 'web-1',
  spec: object = {},
): Promise<void> => {
  testBed.coordinator.sendOrder(
    aStartOrder({ replicaId, spec: { image: IMAGE, command: [], ...spec } }),
  );
  await settle();
};
const pullOf = (testBed: AgentTestBed, replicaId = 'web-1') => {
  const { imagePull } = testBed.requireReport(replicaId);
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
const stopNow = async (testBed: AgentTestBed): Promise<void> => {
  testBed.coordinator.sendOrder(aStopOrder({ preStopMs: 0, graceMs: 0 }));
  await settle();
};

describe('start with a missing image', () => {
  it('pulls the image first and reports the pull with start time and duration', async () => {
    const testBed = await createTestBed();
    await startReplica(testBed);
    expect(testBed.summarizeReport()).toEqual({
      phase: 'STARTING',
      ready: false,
      restarts: 0,
      reason: `pulling ${IMAGE}`,
    });
    expect(pullOf(testBed)).toEqual({ image: IMAGE, phase: 'PULLING' });
    await testBed.clock.advance(PULL_MS);
    expect(testBed.summarizeReport()).toEqual({
      phase: 'RUNNING',
      ready: true,
      restarts: 0,
      reason: '',
    });
    expect(pullOf(testBed)).toEqual({
      image: IMAGE,
      phase: 'PULLED',
      tookMs: PULL_MS,
      sizeBytes: 7_000n,
    });
  });

  it('holds no slot of the start queue during the pull', async () => {
    const testBed = new AgentTestBed();
    testBed.runtime = runtimeFor(testBed.clock);
    testBed.startConcurrency = 1;
    for (const name of ['slow:1', 'slow:2', 'slow:3'])
      testBed.machine.images.set(name, { pullMs: 1e9 });
    await testBed.start();
    for (const [index, image] of ['slow:1', 'slow:2', 'slow:3'].entries())
      await startReplica(testBed, `slow-${index}`, { image });
    testBed.coordinator.sendOrder(aStartOrder({ replicaId: 'process-1' }));
    await startReplica(testBed, 'cached-1', { image: 'there:1' });
    expect([
      testBed.summarizeReport('process-1')?.ready,
      testBed.summarizeReport('cached-1')?.ready,
    ]).toEqual([true, true]);
    expect(testBed.agent.replicas.waitingStartCount).toBe(0);
  });

  it('pulls the image again for another replica only under pull policy ALWAYS', async () => {
    const testBed = await createTestBed();
    await startReplica(testBed);
    await testBed.clock.advance(PULL_MS);
    await startReplica(testBed, 'web-2');
    expect([testBed.summarizeReport('web-2')?.ready, pullOf(testBed, 'web-2')]).toEqual([
      true,
      undefined,
    ]);
    await startReplica(testBed, 'web-3', { imagePull: { policy: ImagePull_Policy.ALWAYS } });
    expect(pullOf(testBed, 'web-3')).toMatchObject({ phase: 'PULLING' });
    expect(testBed.machine.images.pulled).toEqual([IMAGE, IMAGE]);
  });

  it('aborts the pull when the replica is stopped, and never starts the replica', async () => {
    const testBed = await createTestBed();
    await startReplica(testBed);
    await stopNow(testBed);
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'STOPPED', reason: 'scaled down' });
    await testBed.clock.advance(10 * PULL_MS);
    expect(testBed.machine.startCount).toBe(0);
    testBed.coordinator.sendOrder(aForgetOrder());
    await settle();
    expect(testBed.requireReport()).toMatchObject({ forgotten: true });
  });

  it('stops the replica although the runtime does not abort the pull', async () => {
    const testBed = await createTestBed();
    let done: () => void = () => undefined;
    testBed.runtime.prepare = () => new Promise((resolve) => (done = resolve));
    await startReplica(testBed);
    await stopNow(testBed);
    done();
    await testBed.clock.advance(PULL_MS);
    expect([testBed.summarizeReport()?.phase, testBed.machine.startCount]).toEqual(['STOPPED', 0]);
  });

  it('pulls again after a restart of the agent in the middle of a pull', async () => {
    const testBed = await createTestBed();
    await startReplica(testBed);
    await testBed.restart();
    await testBed.clock.advance(100); // delay before the retry of a start that did not complete
    expect(testBed.summarizeReport()).toMatchObject({
      phase: 'STARTING',
      reason: `pulling ${IMAGE}`,
    });
    await testBed.clock.advance(PULL_MS);
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: true });
    expect([testBed.machine.images.pulled, testBed.machine.startCount]).toEqual([
      [IMAGE, IMAGE],
      1,
    ]);
  });
});

describe('failed image pull', () => {
  const createFailingTestBed = async (failure: CloudlessError): Promise<AgentTestBed> => {
    const testBed = await createTestBed();
    testBed.machine.images.set(IMAGE, { pullMs: 10, failure });
    await startReplica(testBed);
    await testBed.clock.advance(10);
    return testBed;
  };

  it('counts as a failed start with the message of the registry and growing back-off', async () => {
    const testBed = await createFailingTestBed(
      new CloudlessError('precondition', 'nginx:alpine: not found'),
    );
    const failed = { image: IMAGE, phase: 'FAILED', tookMs: 10, reason: 'nginx:alpine: not found' };
    expect(testBed.summarizeReport()).toMatchObject({
      restarts: 1,
      reason: 'nginx:alpine: not found, restarting in 100 ms',
    });
    expect(pullOf(testBed)).toEqual(failed);
    await testBed.clock.advance(100);
    expect(testBed.summarizeReport()).toMatchObject({
      restarts: 1,
      reason: `pulling ${IMAGE} again: nginx:alpine: not found`,
    });
    await testBed.clock.advance(10);
    expect(testBed.summarizeReport()).toMatchObject({
      restarts: 2,
      reason: 'nginx:alpine: not found, restarting in 200 ms',
    });
    const before = testBed.machine.images.pulled.length;
    await testBed.clock.advance(60 * 60_000);
    expect(testBed.machine.images.pulled.length - before).toBeLessThan(25);
    expect(testBed.machine.startCount).toBe(0);
    testBed.machine.images.set(IMAGE);
    await testBed.clock.advance(5 * 60_000);
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: true, reason: '' });
  });

  it('is retried soon without counting as a failure when the runtime was unavailable', async () => {
    const testBed = await createFailingTestBed(
      new CloudlessError('unavailable', 'no runtime answers'),
    );
    expect(testBed.summarizeReport()).toMatchObject({
      restarts: 0,
      reason: 'no runtime answers, trying again in 500 ms',
    });
    testBed.machine.images.set(IMAGE);
    await testBed.clock.advance(500);
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: true, restarts: 0 });
  });

  it('has the duration by the monotonic clock when it is interrupted and the wall clock jumps', async () => {
    const testBed = await createTestBed();
    const { clock } = testBed;
    const interrupt: { fail?: (reason: unknown) => void } = {};
    testBed.runtime.prepare = (_request, progress) => {
      progress({ kind: 'pulling', image: IMAGE });
      return new Promise((_resolve, reject) => (interrupt.fail = reject));
    };
    await startReplica(testBed);
    await clock.advance(1_500);
    const wallTime = clock.wallTime.bind(clock);
    clock.wallTime = () => wallTime() + 3_600_000;
    interrupt.fail?.(new CloudlessError('precondition', 'the registry closed the connection'));
    await settle();
    expect(pullOf(testBed)).toMatchObject({ phase: 'FAILED', tookMs: 1_500 });
  });

  it('is logged once when every attempt fails for the same cause', async () => {
    const testBed = await createTestBed();
    const warnings: string[] = [];
    await testBed.stop();
    testBed.log = {
      ...testBed.log,
      warn: (message) => warnings.push(message),
      child: () => testBed.log,
    };
    await testBed.start();
    testBed.runtime.prepare = () =>
      Promise.reject(new CloudlessError('unavailable', 'no runtime answers'));
    await startReplica(testBed);
    await testBed.clock.advance(10_000);
    expect(warnings).toEqual(['container not prepared']);
  });

  it('does not delay a later stop when the runtime is unavailable', async () => {
    const testBed = await createFailingTestBed(
      new CloudlessError('unavailable', 'no runtime answers'),
    );
    testBed.runtime.stop = async () => {
      throw new CloudlessError('unavailable', 'no runtime answers');
    };
    await stopNow(testBed);
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'STOPPED' });
  });

  it('is a failed start with the reason that the image is missing under pull policy NEVER', async () => {
    const testBed = await createTestBed();
    await startReplica(testBed, 'web-1', { imagePull: { policy: ImagePull_Policy.NEVER } });
    expect(testBed.summarizeReport()?.reason).toBe(
      `image ${IMAGE} is not on this node, and is never pulled, restarting in 100 ms`,
    );
    expect(testBed.machine.images.pulled).toEqual([]);
  });
});

describe('container start whose answer is lost, after its image was pulled', () => {
  it('is followed by a stop call when the replica is stopped while its image is pulled again', async () => {
    const testBed = await createTestBed();
    testBed.machine.images.set(IMAGE);
    testBed.machine.failNextStart(new CloudlessError('unavailable', 'no answer'));
    await startReplica(testBed, 'web-1', { imagePull: { policy: ImagePull_Policy.ALWAYS } });
    await testBed.clock.advance(0);
    testBed.machine.images.set(IMAGE, { pullMs: PULL_MS });
    await testBed.clock.advance(500);
    expect(testBed.summarizeReport()?.reason).toBe(`pulling ${IMAGE}`);
    const stopped: string[] = [];
    const stop = testBed.runtime.stop.bind(testBed.runtime);
    testBed.runtime.stop = (containerId, graceMs) => {
      stopped.push(containerId);
      return stop(containerId, graceMs);
    };
    await stopNow(testBed);
    expect([stopped.length, testBed.summarizeReport()?.phase]).toEqual([1, 'STOPPED']);
  });

  it('leads to one running container when the image cannot be pulled at the retry', async () => {
    const testBed = await createTestBed();
    const ALWAYS = { imagePull: { policy: ImagePull_Policy.ALWAYS } };
    testBed.machine.images.set(IMAGE);
    const completeStart = loseAnswer(testBed);
    await startReplica(testBed, 'web-1', ALWAYS);
    testBed.machine.images.set(IMAGE, {
      failure: new CloudlessError('precondition', 'no such registry'),
    });
    await testBed.clock.advance(500);
    expect(testBed.summarizeReport()?.reason).toContain('no such registry');
    testBed.machine.images.set(IMAGE);
    await completeStart();
    await testBed.clock.advance(1_000);
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: true });
    expect([running(testBed).length, testBed.machine.startCount]).toEqual([1, 1]);
  });

  it('is not repeated when the runtime later reports the container as running', async () => {
    const testBed = await createTestBed();
    testBed.machine.images.set(IMAGE);
    const completeStart = loseAnswer(testBed);
    await startReplica(testBed, 'web-1', { imagePull: { policy: ImagePull_Policy.ALWAYS } });
    testBed.machine.images.set(IMAGE, { pullMs: PULL_MS });
    await testBed.clock.advance(500);
    expect(testBed.summarizeReport()?.reason).toContain('pulling');
    testBed.machine.images.set(IMAGE);
    await completeStart();
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'RUNNING' });
    let startCalls = 0;
    testBed.runtime.start = () =>
      Promise.reject(new CloudlessError('internal', `startCalls ${(startCalls += 1)} times`));
    await testBed.clock.advance(2 * PULL_MS);
    expect([startCalls, running(testBed).length]).toEqual([0, 1]);
  });

  it('leaves no running container under restart policy NEVER', async () => {
    const testBed = await createTestBed();
    testBed.machine.images.set(IMAGE);
    const completeStart = loseAnswer(testBed);
    const restart = { policy: RestartPolicy_Policy.NEVER };
    await startReplica(testBed, 'web-1', {
      imagePull: { policy: ImagePull_Policy.ALWAYS },
      restart,
    });
    testBed.machine.images.set(IMAGE, {
      failure: new CloudlessError('precondition', 'no such registry'),
    });
    await testBed.clock.advance(500);
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'FAILED' });
    testBed.machine.images.set(IMAGE);
    await completeStart();
    await testBed.clock.advance(1_000);
    expect(running(testBed)).toEqual([]);
  });

  it('is reported when it completes after its replica was forgotten, and the coordinator stops it', async () => {
    const testBed = await createTestBed();
    const completeStart = loseAnswer(testBed);
    await startReplica(testBed, 'web-1', { image: 'there:1' });
    await stopNow(testBed);
    testBed.coordinator.sendOrder(aForgetOrder());
    await settle();
    expect(testBed.requireReport()).toMatchObject({ forgotten: true });
    await completeStart();
    expect(testBed.requireReport()).toMatchObject({
      forgotten: false,
      containerId: running(testBed)[0],
    });
    testBed.coordinator.sendOrder(aForgetOrder());
    await testBed.clock.advance(60_000);
    expect(testBed.machine.statuses()).toEqual([]);
  });

  it('leaves only the container of the next agent when the agent is killed before the container starts', async () => {
    const testBed = await createTestBed();
    testBed.machine.images.set(IMAGE);
    let request: ContainerRequest | undefined;
    testBed.runtime.start = (startRequest) => {
      request = startRequest;
      return new Promise(() => undefined);
    };
    await startReplica(testBed);
    await testBed.restart();
    await testBed.clock.advance(1_000);
    const [current] = running(testBed);
    if (request === undefined || current === undefined) throw new Error('nothing was started');
    await expect(testBed.runtime.start(request)).rejects.toMatchObject({ kind: 'exists' });
    // A start after failures that the killed agent had not stored has another id.
    await testBed.runtime.start({ ...request, containerId: toContainerId('b'.repeat(64)) });
    await testBed.clock.advance(1_000);
    expect(running(testBed)).toEqual([current]);
    expect(testBed.machine.statuses().map(({ containerId }) => containerId)).toEqual([current]);
  });
});

/**
 * Makes the next start call fail without an answer. The container starts only when the returned
 * function is called.
 */
function loseAnswer(testBed: AgentTestBed): () => Promise<void> {
  const start = testBed.runtime.start.bind(testBed.runtime);
  let completeStart: () => Promise<unknown> = () => Promise.resolve();
  testBed.runtime.start = (request) => {
    testBed.runtime.start = start;
    completeStart = () => start(request);
    return Promise.reject(new CloudlessError('unavailable', 'no answer'));
  };
  return async () => {
    await completeStart();
    await settle();
  };
}

const running = (testBed: AgentTestBed): readonly string[] =>
  testBed.machine
    .statuses()
    .flatMap(({ phase, containerId }) => (phase === 'running' ? [containerId] : []));
