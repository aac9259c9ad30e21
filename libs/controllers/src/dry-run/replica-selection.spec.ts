import { create } from '@bufbuild/protobuf';
import fc from 'fast-check';
import {
  ReplicaStatus_Phase as Phase,
  RolloutStatus_Phase as RolloutPhase,
  Rollout_Strategy as Strategy,
} from '@cloudless/api';
import {
  ControlRecordSchema,
  NodeRecordSchema,
  ReplicaRecordSchema,
  WorkloadRecordSchema,
  type ReplicaRecord,
} from '@cloudless/api/store';
import { runAtOnce } from '@cloudless/base';
import { NO_PINS, createVersionRecord } from '@cloudless/cluster-state';
import { aSpec } from '../testing/test-bed.js';
import { createRecordSource } from '../what-if/record-source.js';
import { DryRunCluster } from './dry-run-cluster.js';
import { PlacementBudget } from './placement-budget.js';
import { putPredictedWorkload } from './predicted-workload.js';
import type { DryRunResult } from './dry-run-result.js';
import { simulateRollout } from './simulate-rollout.js';

const UID = 'web';
const NODES = ['node-1', 'node-2', 'node-3'];
const clock = { wallTime: () => 0 };

/** States of a replica, as the fields of its record. Most replicas run, or wait for a node. */
const STATES: readonly Partial<
  Pick<ReplicaRecord, 'phase' | 'ready' | 'nodeId' | 'reason' | 'desiredRunning' | 'lost'>
>[] = [
  { phase: Phase.RUNNING, ready: true },
  { phase: Phase.RUNNING, ready: true },
  { phase: Phase.PENDING, nodeId: '', reason: 'no node fits: too little CPU' },
  { phase: Phase.PENDING, nodeId: '', reason: 'no node fits: too little CPU' },
  { phase: Phase.PENDING, nodeId: '' },
  { phase: Phase.STARTING },
  { phase: Phase.RUNNING },
  { phase: Phase.STOPPING, desiredRunning: false },
  { phase: Phase.FAILED, lost: true, desiredRunning: false },
  { phase: Phase.SUCCEEDED },
];

interface World {
  readonly states: readonly {
    readonly state: number;
    readonly node: number;
    readonly isOld: boolean;
  }[];
  readonly before: number;
  readonly after: number;
  readonly cpuMillis: number;
  readonly newCommand: boolean;
  readonly newCpuMillis: number;
  readonly strategy: Strategy;
  readonly limits: {
    readonly maxSurge: number;
    readonly maxUnavailable: number;
    readonly minAvailable: number;
  };
  readonly draining: boolean;
  readonly pausedVersion: number;
  readonly phase: RolloutPhase;
}

const seldom = <Value>(usual: Value, other: Value) =>
  fc.nat(7).map((value) => (value === 0 ? other : usual));

const arbWorld = (states: readonly number[]): fc.Arbitrary<World> =>
  fc.record({
    states: fc.array(
      fc.record({ state: fc.constantFrom(...states), node: fc.nat(2), isOld: fc.boolean() }),
      { maxLength: 14, size: 'max' },
    ),
    before: fc.nat(14),
    after: fc.nat(16),
    cpuMillis: fc.constantFrom(100, 500, 1_000, 5_000),
    newCommand: fc.boolean(),
    newCpuMillis: fc.constantFrom(100, 1_000, 5_000),
    strategy: seldom(Strategy.ROLLING_UPDATE, Strategy.RECREATE),
    limits: fc.record({
      maxSurge: fc.nat(3),
      maxUnavailable: fc.nat(4),
      minAvailable: fc.constantFrom(0, 0, 3, 9),
    }),
    draining: seldom(false, true),
    pausedVersion: seldom(0, 2),
    phase: fc.constantFrom(RolloutPhase.COMPLETED, RolloutPhase.IN_PROGRESS, RolloutPhase.FAILED),
  });

/** Predicts the change of a world with at most `simulated` replicas simulated one by one. */
function predict(world: World, simulated: number): DryRunResult {
  const { states, cpuMillis, strategy, limits, phase, pausedVersion } = world;
  const toSpec = (replicas: number, command: string, cpu: number) =>
    aSpec({
      command: [command],
      replicas,
      resources: { requests: { cpuMillis: cpu } },
      rollout: { strategy, ...limits },
    });
  const spec = toSpec(world.before, 'serve', cpuMillis);
  const versionFields = { nowMs: 0, earlier: [], pins: NO_PINS };
  const names = { namespace: 'default', name: UID };
  const workload = create(WorkloadRecordSchema, {
    ...{ ...names, uid: UID, spec, generation: 2n, version: 2 },
  });
  const source = createRecordSource(
    {
      revision: 1n,
      nodes: NODES.map((id) =>
        create(NodeRecordSchema, {
          id,
          hello: {
            nodeId: id,
            capacity: { cpuMillis: 4_000, memoryBytes: 8n << 30n },
            capabilities: ['runtime.process'],
          },
          ...(world.draining && id === 'node-1' ? { draining: true, cordoned: true } : {}),
        }),
      ),
      workloads: [workload],
      versions: [
        [
          UID,
          createVersionRecord(toSpec(world.before, 'old', cpuMillis), {
            ...{ ...versionFields, version: 1 },
          }),
        ],
        [UID, createVersionRecord(spec, { ...versionFields, version: 2 })],
      ],
      controls: [
        create(ControlRecordSchema, {
          ...{ uid: UID, nextSequence: BigInt(states.length + 1), observedGeneration: 2n },
          ...{ activeVersion: phase === RolloutPhase.COMPLETED ? 2 : 1, rolloutPhase: phase },
          ...{ pausedVersion, rollout: { version: 2, fromVersion: 1, strategy } },
        }),
      ],
      replicas: states.map(({ state, node, isOld }, index) =>
        create(ReplicaRecordSchema, {
          ...{ id: `${UID}-${index + 1}`, uid: UID, sequence: BigInt(index + 1) },
          ...{ version: isOld ? 1 : 2, nodeId: NODES[node] ?? '', desiredRunning: true },
          ...STATES[state],
        }),
      ),
    },
    { clock },
  );
  const unlimited = Number.MAX_SAFE_INTEGER;
  const budget = new PlacementBudget(NODES.length, {
    ...{ slice: unlimited, total: unlimited, newReplicas: unlimited, simulated },
  });
  const cluster = new DryRunCluster({ ...source, state: { view: () => source.view } }, budget);
  const changed = world.newCommand
    ? toSpec(world.after, 'new', world.newCpuMillis)
    : toSpec(world.after, 'serve', cpuMillis);
  const subject = { ...names, current: workload, spec: changed };
  const predicted = putPredictedWorkload(cluster, source.view, subject, 0).workload;
  return runAtOnce(simulateRollout(cluster, { clock }, predicted));
}

/**
 * The part of a prediction that a user sees: a plan with waiting replicas shows no other reason.
 */
const shownOf = ({ steps, omittedSteps, stuckReason, ...rest }: DryRunResult) => ({
  ...rest,
  suggestChange: rest.suggestChange(),
  stuckReason: rest.unplaced > 0 ? undefined : stuckReason,
  totalSteps: steps.length + omittedSteps,
});

/** Of a prediction that was cut short: what does not depend on the placement of each replica. */
const countsOf = (result: DryRunResult) => {
  const { totalSteps, readyBefore, highestLive, minAvailable, outcome } = shownOf(result);
  return { totalSteps, readyBefore, highestLive, minAvailable, outcome };
};

const ALL = Number.MAX_SAFE_INTEGER;

/**
 * Checks the prediction with few simulated replicas against that with all of them.
 * @returns True when both are complete, and so have to be equal.
 */
function checkSame(world: World, simulated: number): boolean {
  const [part, all] = [predict(world, simulated), predict(world, ALL)];
  if (part.notPredicted === 0) {
    expect(shownOf(part)).toEqual(shownOf(all));
    if (part.omittedSteps === 0) expect(part.steps).toEqual(all.steps);
    return true;
  }
  // The prediction assumes that the other replicas find a node at once.
  if (all.unplaced === 0 && all.stuckReason === undefined) {
    expect(countsOf(part)).toEqual(countsOf(all));
    expect(part.lowestReady).toBeGreaterThanOrEqual(all.lowestReady);
  }
  return false;
}

describe('a prediction that simulates only a part of the replicas', () => {
  it.each<readonly [name: string, states: readonly number[]]>([
    ['in every state', STATES.map((_, index) => index)],
    ['that run', [0]],
    ['that run or wait', [0, 2, 4]],
    ['that wait', [2]],
  ])('equals the prediction that simulates all replicas %s', (_, states) => {
    let complete = 0;
    fc.assert(
      fc.property(arbWorld(states), fc.constantFrom(0, 1, 3), (world, simulated) => {
        if (checkSame(world, simulated)) complete += 1;
      }),
      { numRuns: 60 },
    );
    expect(complete).toBeGreaterThan(5);
  });
});
