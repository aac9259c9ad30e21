import { jest } from '@jest/globals';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import type { MessageInitShape } from '@bufbuild/protobuf';
import {
  Rollout_OnFailure as OnFailure,
  Rollout_Promotion as Promotion,
  Rollout_Strategy as Strategy,
  RolloutStatus_Phase as RolloutPhase,
  type RolloutSchema,
} from '@cloudless/api';
import type { StateStore } from '@cloudless/state-store';
import { factsOf } from '../checks/rollout-facts.js';
import { neverSettle } from '../parts/sim-process.js';
import { MISBEHAVIOUR_ANNOTATION, type Misbehaviour } from '../parts/sim-replicas.js';
import { SimCluster } from '../sim-cluster/sim-cluster.js';

/** Hundreds of small worlds run here, which takes long on a busy machine. */
jest.setTimeout(600_000);

/**
 * Point at which the coordinator dies: just before or after its n-th transaction since the update.
 */
interface Crash {
  readonly commit: number;
  readonly when: 'before' | 'after';
}

interface Case {
  readonly name: string;
  readonly rollout: MessageInitShape<typeof RolloutSchema>;
  /** Behaviour of the new version. */
  readonly misbehaviour?: Misbehaviour;
  readonly expected: { readonly phase: string; readonly version: number };
}

const ms = durationFromMs;
const completed = { phase: 'COMPLETED', version: 2 };
const cases: readonly Case[] = [
  { name: 'a rolling update', rollout: {}, expected: completed },
  {
    name: 'canary steps',
    rollout: {
      steps: [
        { replicas: 1, wait: ms(300) },
        { percent: 60, promotion: Promotion.MANUAL },
      ],
    },
    expected: completed,
  },
  { name: 'RECREATE', rollout: { strategy: Strategy.RECREATE }, expected: completed },
  {
    name: 'BLUE_GREEN',
    rollout: { strategy: Strategy.BLUE_GREEN, promotion: Promotion.MANUAL, pauseDuration: ms(500) },
    expected: completed,
  },
  {
    name: 'a rollback',
    rollout: { maxFailedNew: 1, onFailure: OnFailure.ROLLBACK },
    misbehaviour: 'crashes',
    expected: { phase: 'ROLLED_BACK', version: 3 },
  },
];

/**
 * Runs a rollout in a small world, with or without a crash.
 * @returns Its end state and the number of its transactions.
 */
async function runRollout(
  { rollout, misbehaviour }: Case,
  crash?: Crash,
): Promise<{ readonly end: unknown; readonly commits: number }> {
  let commits = 0;
  let isCounting = false;
  const countTransactions = (store: StateStore): StateStore => ({
    ...store,
    txn: async (compares, operations) => {
      if (!isCounting) return store.txn(compares, operations);
      commits += 1;
      const crashTime = commits === crash?.commit ? crash.when : undefined;
      if (crashTime === 'before') return killCoordinator(world);
      const committed = await store.txn(compares, operations);
      return crashTime === 'after' ? killCoordinator(world) : committed;
    },
  });
  const plan = {
    nodes: 2,
    users: 1,
    weights: {},
    drift: false,
    cpuMillis: 4_000,
    historyLimit: 100_000,
  };
  const world = new SimCluster({ seed: 1, plan, injected: { store: countTransactions } });
  await world.start();
  const limits = {
    minReadyDuration: ms(100),
    progressDeadline: ms(10_000),
    minAvailable: 2,
    ...rollout,
  };
  const spec = {
    command: ['serve'],
    replicas: 3,
    ports: [{ name: 'http', containerPort: 80 }],
    rollout: limits,
  };
  const name = 'one';
  await world.call('create', (client, requestId) =>
    client.createWorkload({ name, spec, requestId }),
  );
  await world.settle();
  isCounting = true;
  const changed = {
    args: ['new'],
    annotations: misbehaviour === undefined ? {} : { [MISBEHAVIOUR_ANNOTATION]: misbehaviour },
  };
  await world.call('update', (client, requestId) =>
    client.updateWorkload({ name, spec: changed, requestId }),
  );
  await world.settle();
  isCounting = false;
  return { end: { violations: world.violations, ...endOf(world) }, commits };
}

/** Kills the coordinator; a new coordinator starts after 30 ms. The promise never settles. */
function killCoordinator<Result>(world: SimCluster): Promise<Result> {
  world.killCoordinator(30);
  return neverSettle();
}

/** Describes the state in which a rollout has ended, without ids. */
function endOf({ records }: SimCluster) {
  const [workload] = records.workloads();
  if (workload === undefined) throw new Error('the workload is gone');
  const { live, control, canonicalVersion, active, wanted } = factsOf(records, workload.value);
  return {
    phase: RolloutPhase[control?.rolloutPhase ?? 0],
    version: control?.rollout?.version,
    fromVersion: control?.rollout?.fromVersion,
    stepsDone: control?.rollout?.stepsDone,
    generation: workload.value.generation,
    active,
    wanted,
    replicas: live.map(({ version, ready, desiredRunning }) => ({
      version: canonicalVersion(version),
      ready,
      desiredRunning,
    })),
  };
}

describe('invariant 12: a coordinator crash at any step of a rollout', () => {
  it.each(cases)('leads to the same end and never goes below min_available: $name', async (row) => {
    const { end, commits } = await runRollout(row);
    expect(end).toMatchObject({ violations: [], ...row.expected });
    expect(commits).toBeGreaterThan(8);
    for (let commit = 1; commit <= commits; commit += 1) {
      for (const when of ['before', 'after'] as const) {
        const crashed = await runRollout(row, { commit, when });
        expect({ commit, when, end: crashed.end }).toEqual({ commit, when, end });
      }
    }
  });
});
