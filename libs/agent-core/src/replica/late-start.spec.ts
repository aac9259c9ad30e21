import { RestartPolicy_Policy } from '@cloudless/api';
import { CloudlessError, toContainerId } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import type { ContainerRequest, ContainerStatus } from '@cloudless/runtime';
import type { FakeRuntime } from '@cloudless/runtime/testing';
import { aStartOrder, AgentTestBed } from '../testing/index.js';

/** Holds back starts, which reach the machine whether or not their agent still lives. */
class HeldStarts {
  private readonly held: (() => Promise<void>)[] = [];

  /** Returns `runtime` with starts that are held back. */
  wrap(runtime: FakeRuntime): FakeRuntime {
    const start = (request: ContainerRequest): Promise<ContainerStatus> =>
      new Promise((resolve, reject) => {
        this.held.push(() => runtime.start(request).then(resolve, reject));
      });
    return Object.assign(Object.create(runtime) as FakeRuntime, { start });
  }

  /** Lets the oldest start reach the machine. */
  async release(): Promise<void> {
    const start = this.held.shift();
    if (start === undefined) throw new Error('no start is held back');
    await start();
    await settle();
  }
}

/**
 * Kills an agent that has sent a start, and starts the next agent, which sends its start of the
 * same replica. `starts` holds both starts back, the start of the killed agent first.
 */
async function createSuccessor(order = aStartOrder()) {
  const testBed = new AgentTestBed();
  const starts = new HeldStarts();
  testBed.runtime = starts.wrap(testBed.runtime);
  await testBed.start();
  testBed.coordinator.sendOrder(order);
  await settle();
  await testBed.kill();
  testBed.runtime = starts.wrap(testBed.runtime);
  await testBed.start();
  await testBed.clock.advance(0);
  return { testBed, starts };
}

describe('A start whose agent was killed', () => {
  it('is adopted when it begins before the start of the next agent', async () => {
    const { testBed, starts } = await createSuccessor();
    await starts.release();
    const [container] = await testBed.runtime.list();
    expect(testBed.requireReport().containerId).toBe(container?.containerId);
    await starts.release();
    await testBed.clock.advance(60_000);
    expect(await testBed.runtime.list()).toMatchObject([{ phase: 'running' }]);
    expect(testBed.summarizeReport()).toMatchObject({ ready: true, restarts: 0 });
    expect(testBed.machine.startCount).toBe(1);
  });

  it('runs a replica with restart policy "never" once when it ends before the next start', async () => {
    const { testBed, starts } = await createSuccessor(
      aStartOrder({ spec: { restart: { policy: RestartPolicy_Policy.NEVER } } }),
    );
    await starts.release();
    const [container] = await testBed.runtime.list();
    testBed.machine.exit(toContainerId(container?.containerId ?? ''), 0);
    await starts.release();
    await testBed.clock.advance(60_000);
    expect(testBed.summarizeReport()?.phase).toBe('SUCCEEDED');
    expect(testBed.machine.startCount).toBe(1);
  });
});

describe('A start whose runtime does not answer in time', () => {
  it('is adopted when the container runs later, and no second container is started', async () => {
    const testBed = new AgentTestBed();
    const { runtime } = testBed;
    let startLate: () => Promise<unknown> = async () => undefined;
    const start = async (request: ContainerRequest): Promise<ContainerStatus> => {
      startLate = () => runtime.start(request);
      throw new CloudlessError('unavailable', 'no reply within 10 s');
    };
    testBed.runtime = Object.assign(Object.create(runtime) as FakeRuntime, { start });
    await testBed.start();
    testBed.coordinator.sendOrder(aStartOrder());
    await settle();
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'STARTING' });
    await startLate();
    await testBed.clock.advance(60_000);
    expect(testBed.summarizeReport()).toMatchObject({ ready: true, restarts: 0 });
    expect(testBed.machine.startCount).toBe(1);
    expect(await testBed.runtime.list()).toHaveLength(1);
  });
});
