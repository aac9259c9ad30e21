import { RestartPolicy_Policy as RestartMode } from '@cloudless/api';
import { CloudlessError, toContainerId } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import { aStartOrder, AgentTestBed } from '../testing/index.js';

const IMAGE = 'nginx:alpine';
const REFUSED = new CloudlessError('precondition', 'no executable server');

describe('an agent', () => {
  let testBed: AgentTestBed;
  beforeEach(async () => {
    testBed = new AgentTestBed();
    await testBed.start();
  });
  const countsOf = () => {
    const { restarts, failedStarts } = testBed.requireReport();
    return { restarts, failedStarts };
  };
  const startReplica = async (
    spec: NonNullable<Parameters<typeof aStartOrder>[0]>['spec'] = {},
  ) => {
    testBed.coordinator.sendOrder(aStartOrder({ spec }));
    await settle();
  };
  const crash = async (): Promise<void> => {
    testBed.machine.exit(toContainerId(testBed.requireReport().containerId), 1);
    await settle();
  };
  /** Refuses two starts, then lets the container run. */
  const runAfterTwoFailedStarts = async (): Promise<void> => {
    testBed.machine.failNextStart(REFUSED);
    testBed.machine.failNextStart(REFUSED);
    await startReplica();
    await testBed.clock.advance(1_000);
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: true });
  };

  it.each([
    {
      name: 'a start that the runtime refuses as a failed start',
      act: async () => {
        testBed.machine.failNextStart(REFUSED);
        await startReplica();
      },
      counts: { restarts: 1, failedStarts: 1 },
    },
    {
      name: 'an image pull that fails as a failed start',
      act: async () => {
        testBed.machine.images.set(IMAGE, { pullMs: 10, failure: REFUSED });
        await startReplica({ image: IMAGE });
        await testBed.clock.advance(10);
      },
      counts: { restarts: 1, failedStarts: 1 },
    },
    {
      name: 'a container that ran and ended as no failed start',
      act: async () => {
        await startReplica();
        await crash();
      },
      counts: { restarts: 1, failedStarts: 0 },
    },
    {
      name: 'the loss of a container that ran as no failed start',
      act: async () => {
        await startReplica();
        testBed.machine.removeSilently(toContainerId(testBed.requireReport().containerId));
        await testBed.restart();
      },
      counts: { restarts: 1, failedStarts: 0 },
    },
    {
      name: 'a call that the runtime does not answer as neither',
      act: async () => {
        testBed.machine.failNextStart(new CloudlessError('unavailable', 'no answer'));
        await startReplica();
      },
      counts: { restarts: 0, failedStarts: 0 },
    },
    {
      name: 'a start after which the replica has failed as neither',
      act: async () => {
        testBed.machine.failNextStart(REFUSED);
        await startReplica({ restart: { policy: RestartMode.NEVER } });
      },
      counts: { restarts: 0, failedStarts: 0 },
    },
  ])('counts $name', async ({ act, counts }) => {
    await act();
    expect(countsOf()).toEqual(counts);
  });

  it('counts failed starts beside the restarts of a replica, and both make the back-off grow', async () => {
    await runAfterTwoFailedStarts();
    expect(countsOf()).toEqual({ restarts: 2, failedStarts: 2 });
    await crash();
    expect(countsOf()).toEqual({ restarts: 3, failedStarts: 2 });
    expect(testBed.summarizeReport()).toMatchObject({
      reason: 'exit code 1, restarting in 400 ms',
    });
  });

  it('gives each attempt to start a replica another container id', async () => {
    const ids: string[] = [];
    const { runtime } = testBed;
    const start = runtime.start.bind(runtime);
    runtime.start = (request) => {
      ids.push(request.containerId);
      return start(request);
    };
    await runAfterTwoFailedStarts();
    await crash();
    await testBed.clock.advance(1_000);
    expect(ids).toHaveLength(4);
    expect(new Set(ids).size).toBe(4);
  });

  it('keeps the failed starts of a replica without a container over its own restart', async () => {
    testBed.machine.failNextStart(REFUSED);
    await startReplica();
    await testBed.restart();
    expect(countsOf()).toEqual({ restarts: 1, failedStarts: 1 });
  });

  it('reads the failed starts from the container labels when the progress was not stored', async () => {
    await runAfterTwoFailedStarts();
    await testBed.kill();
    for (const [id, replica] of testBed.store.replicas) {
      const { failedStarts: _lost, ...progress } = replica.progress;
      testBed.store.replicas.set(id, { ...replica, progress: { ...progress, restarts: 0 } });
    }
    await testBed.start();
    expect(countsOf()).toEqual({ restarts: 2, failedStarts: 2 });
  });
});
