import type { WorkloadPlan } from '@cloudless/api';
import type { Clock } from '@cloudless/base';
import { TestBed, aSpec } from '../testing/test-bed.js';
import { WorkloadPresenter } from '../workload/workload-presenter.js';
import type { DryRunPlanner } from './dry-run-planner.js';
import { DryRunService } from './dry-run-service.js';

/** Enough replicas for several slices of the simulation of an update. */
const REPLICAS = 1_200;
const REQUESTS = { resources: { requests: { cpuMillis: 1, memoryBytes: 1n << 20n } } };

let bed: TestBed;
let dryRun: DryRunService;

beforeEach(async () => {
  pauses.length = 0;
  bed = await TestBed.open({ nodes: [] });
  for (const nodeId of ['node-1', 'node-2'])
    await bed.addNode(nodeId, {
      hello: {
        ...{ nodeId, maxReplicas: 2 * REPLICAS, capabilities: ['runtime.process'] },
        capacity: { cpuMillis: 4_000, memoryBytes: 8n << 30n },
      },
    });
  const presenter = new WorkloadPresenter(bed.state, bed.nodes, bed);
  dryRun = new DryRunService(bed.dependencies({ presenter, clock: pausingClock() }));
  await bed.createWorkload({ replicas: REPLICAS, ...REQUESTS });
  await bed.addReplicas(REPLICAS);
  await bed.changeControl({
    ...{ nextSequence: BigInt(REPLICAS + 1), activeVersion: 1, rollout: { version: 1 } },
  });
  await bed.advance(10_000);
});
afterEach(() => bed.close());

const updateOf = (name: string, replicas: number) => ({
  ...{ namespace: 'default', name, current: bed.workload(name) },
  spec: aSpec({ replicas, command: ['new'], ...REQUESTS }),
});

/** Returns the prediction of an update of all replicas of the workload as it is when called. */
const predictUpdate = () => {
  const subject = updateOf('web', REPLICAS);
  return (planner: DryRunPlanner): Generator<void, WorkloadPlan> => planner.planChange(subject);
};

/** As `predictUpdate`, followed by an update of a workload that is read after the pauses. */
const predictTwoUpdates = () => {
  const subjects = [updateOf('web', REPLICAS), updateOf('late', 1)];
  return function* predict(planner: DryRunPlanner): Generator<void, readonly WorkloadPlan[]> {
    const plans: WorkloadPlan[] = [];
    for (const subject of subjects) plans.push(yield* planner.planChange(subject));
    return plans;
  };
};

/** The pauses of predictions that have not ended. */
const pauses: (() => void)[] = [];
/** A clock on which a pause ends only when a test ends it. */
const pausingClock = (): Clock => ({
  now: () => bed.clock.now(),
  wallTime: () => bed.clock.wallTime(),
  setTimer: (_, action) => {
    pauses.push(action);
    return { cancel: () => pauses.splice(pauses.indexOf(action), 1) };
  },
});

/** Waits until a prediction pauses or ends. */
const untilPause = async (): Promise<void> => {
  for (let turn = 0; turn < 20 && pauses.length === 0; turn += 1) await Promise.resolve();
};

/** Ends the pauses of the predictions until all have ended. Returns the number of pauses. */
async function settle(): Promise<number> {
  let count = 0;
  for (await untilPause(); pauses.length > 0; await untilPause()) {
    count += 1;
    pauses.shift()?.();
  }
  return count;
}

describe('DryRunService.predict', () => {
  it.each([
    {
      name: 'a replica becomes unready',
      change: () => bed.changeReplica('web-1', { ready: false }),
    },
    {
      name: 'a replica of the second workload becomes unready',
      change: () => bed.changeReplica('late-1', { ready: false }),
    },
    {
      name: 'a node loses its connection',
      change: () => {
        bed.disconnect('node-2');
        return Promise.resolve();
      },
    },
    {
      name: 'a node is drained',
      change: () => bed.changeNode('node-2', { cordoned: true, draining: true }),
    },
    { name: 'the rollout is paused', change: () => bed.changeControl({ pausedVersion: 2 }) },
  ])('predicts the state of its beginning when $name in a pause', async ({ change }) => {
    await bed.createWorkload({ replicas: 1, ...REQUESTS }, 'late');
    await bed.addReplicas(1, () => ({ id: 'late-1', uid: 'late', nodeId: 'node-2' }));
    await bed.advance(10_000);
    const expected = dryRun.predictAtOnce(predictTwoUpdates());
    const result = dryRun.predict(predictTwoUpdates());
    await untilPause();
    expect(pauses).toHaveLength(1);
    await change();
    await bed.advance(60_000);
    // An update of one replica takes two steps, of which at most 500 are in one slice.
    expect(await settle()).toBeGreaterThanOrEqual((2 * REPLICAS) / 500);
    expect(await result).toEqual(expected);
    expect(expected).toMatchObject([
      { totalSteps: 2 * REPLICAS, readyBefore: REPLICAS },
      { totalSteps: 2, readyBefore: 1 },
    ]);
  });

  it('predicts a workload with 2 replicas without a pause', async () => {
    const spec = aSpec({ replicas: 2, ...REQUESTS });
    const subject = { namespace: 'default', name: 'small', current: undefined, spec };
    const plan = await dryRun.predict((planner) => planner.planChange(subject));
    expect(plan.totalPlacements).toBe(2);
  });

  it('begins a prediction when the prediction before has ended, with the state of then', async () => {
    const begun: string[] = [];
    const begin = (name: string) =>
      dryRun.predict((planner) => {
        begun.push(name);
        return predictUpdate()(planner);
      });
    void begin('first');
    const second = begin('second');
    await untilPause();
    await bed.changeReplica('web-1', { ready: false });
    expect(begun).toEqual(['first']);
    await settle();
    expect(begun).toEqual(['first', 'second']);
    expect((await second).readyBefore).toBe(REPLICAS - 1);
  });

  it('stops a prediction that is aborted, and runs the next', async () => {
    const aborted = new AbortController();
    const first = dryRun.predict(predictUpdate(), aborted.signal);
    const waiting = dryRun.predict(predictUpdate(), aborted.signal);
    const next = dryRun.predict(predictUpdate());
    const failures = Promise.allSettled([first, waiting]);
    await untilPause();
    aborted.abort();
    const stopped = {
      status: 'rejected',
      reason: expect.objectContaining({ name: 'StoppedError' }),
    };
    expect(await failures).toEqual([stopped, stopped]);
    await settle();
    expect((await next).readyBefore).toBe(REPLICAS);
  });

  it('ends with the error of the prediction, and runs the next', async () => {
    const refusal = new Error('refused');
    const failed = dryRun.predict(() => {
      throw refusal;
    });
    await expect(failed).rejects.toBe(refusal);
    const next = dryRun.predict(predictUpdate());
    await settle();
    expect((await next).readyBefore).toBe(REPLICAS);
  });
});
