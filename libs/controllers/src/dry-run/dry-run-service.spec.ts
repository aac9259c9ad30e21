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

/** Returns the prediction of an update of all replicas of the workload as it is when called. */
const predictUpdate = () => {
  const current = bed.workload();
  return (planner: DryRunPlanner): Generator<void, WorkloadPlan> =>
    planner.planChange({
      ...{ namespace: 'default', name: 'web', current },
      spec: aSpec({ replicas: REPLICAS, command: ['new'], ...REQUESTS }),
    });
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
      name: 'replicas become unready',
      change: () => bed.changeReplica('web-1', { ready: false }),
    },
    {
      name: 'a node is lost',
      change: async () => {
        bed.disconnect('node-2');
        await bed.changeNode('node-2', { lost: true });
      },
    },
    {
      name: 'another version of the workload is wanted',
      change: () => bed.updateWorkload({ replicas: 3, command: ['other'] }),
    },
    {
      name: 'the rollout is paused',
      change: () => bed.changeControl({ pausedVersion: 2 }),
    },
    {
      name: 'a node accepts no more replicas',
      change: () => bed.changeNode('node-2', { cordoned: true }),
    },
  ])('predicts the state of its beginning when $name in a pause', async ({ change }) => {
    const expected = dryRun.predictAtOnce(predictUpdate());
    const result = dryRun.predict(predictUpdate());
    await untilPause();
    expect(pauses).toHaveLength(1);
    await change();
    await bed.advance(60_000);
    // An update of one replica takes two steps, of which at most 500 are in one slice.
    expect(await settle()).toBeGreaterThanOrEqual((2 * REPLICAS) / 500);
    expect(await result).toEqual(expected);
    expect(expected).toMatchObject({ totalSteps: 2 * REPLICAS, readyBefore: REPLICAS });
  });

  it('does not pause for a small workload', async () => {
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
