// Rollout decisions for a workload of 10 000 replicas at several stages: the next steps, and the
// whole predicted rollout.
import { createSeededRandom, toReplicaId } from '@cloudless/base';
import {
  layOut,
  nextSteps,
  resolveLimits,
  type RolloutObserved,
  type RolloutReplica,
} from '@cloudless/rollout';
import { systemClock } from '@cloudless/system';
import { printReport, summarise } from './report.js';
import { Violations } from './violations.js';

const REPLICAS = 10_000;
/** Number of replicas on draining nodes, in some stages. */
const DRAINING = 1_000;
/** Number of replicas in transition in the middle of a rollout. */
const BATCH = 100;
const CALLS = 300;
const WARM_UP_CALLS = 50;
const SEED = 1;

const [OLD, NEW] = [1, 2];
const limits = resolveLimits({
  desired: REPLICAS,
  minAvailable: REPLICAS - BATCH,
  maxSurge: BATCH,
  maxUnavailable: BATCH,
});

type Made = Partial<RolloutReplica> & Pick<RolloutReplica, 'version'>;

let sequence = 0;
const some = (count: number, replica: Made): readonly RolloutReplica[] =>
  Array.from({ length: count }, () => {
    sequence += 1;
    const id = toReplicaId(`w-${sequence}`);
    return {
      id,
      createdSequence: sequence,
      ready: true,
      desired: 'running',
      lost: false,
      draining: false,
      ...replica,
    };
  });

/** Returns the replicas in random order, as a store returns them. */
function shuffled(replicas: readonly RolloutReplica[]): readonly RolloutReplica[] {
  const random = createSeededRandom(SEED);
  return replicas
    .map((replica) => ({ replica, at: random.next() }))
    .sort((a, b) => a.at - b.at)
    .map(({ replica }) => replica);
}

const observed = (...replicas: readonly (readonly RolloutReplica[])[]): RolloutObserved => ({
  ...limits,
  version: NEW,
  replicas: shuffled(replicas.flat()),
});

const half = REPLICAS / 2;
const middle = [
  some(half, { version: NEW }),
  some(BATCH, { version: NEW, ready: false }),
  some(BATCH, { version: OLD, desired: 'stopped', ready: false }),
] as const;

const stages: Readonly<Record<string, RolloutObserved>> = {
  start: observed(some(REPLICAS, { version: OLD })),
  middleBetweenBatches: observed(some(half, { version: NEW }), some(half, { version: OLD })),
  middleOfABatch: observed(...middle, some(half - BATCH, { version: OLD })),
  middleWhileDraining: observed(
    ...middle,
    some(half - BATCH - DRAINING, { version: OLD }),
    some(DRAINING / 2, { version: OLD, draining: true }),
    some(DRAINING / 2, { version: NEW, draining: true }),
  ),
  drainOfTheNewVersion: observed(
    some(REPLICAS - DRAINING, { version: NEW }),
    some(DRAINING, { version: NEW, draining: true }),
  ),
  canaryStep: {
    ...observed(some(REPLICAS, { version: OLD })),
    baseVersion: OLD,
    strategy: { kind: 'rollingUpdate', updated: 100 },
  },
  blueGreenSwitch: {
    ...observed(some(REPLICAS, { version: OLD }), some(REPLICAS, { version: NEW })),
    strategy: { kind: 'blueGreen', activeVersion: OLD, maySwitch: true },
  },
  done: observed(some(REPLICAS, { version: NEW })),
};

/** Runs a call repeatedly. @returns Milliseconds of each call. */
function timed(call: () => unknown): readonly number[] {
  for (let count = 0; count < WARM_UP_CALLS; count += 1) call();
  return Array.from({ length: CALLS }, () => {
    const began = systemClock.now();
    call();
    return systemClock.now() - began;
  });
}

/** Summarises a decision, to prove that the stage is the intended one. */
function outcomeOf(stage: RolloutObserved): string {
  const decision = nextSteps(stage);
  if (decision.kind === 'steps') return `${decision.steps.length} steps`;
  return decision.kind === 'waiting' ? decision.reason.text : decision.kind;
}

const violations = new Violations();
for (const [name, stage] of Object.entries(stages)) {
  const [decision, again] = [
    nextSteps(stage),
    nextSteps({ ...stage, replicas: [...stage.replicas].reverse() }),
  ];
  violations.check(
    JSON.stringify(decision) === JSON.stringify(again),
    `${name}: another order of the replicas decides otherwise`,
  );
  violations.check(
    (decision.kind === 'converged') === (name === 'done'),
    `${name}: decides ${outcomeOf(stage)}`,
  );
}

printReport('rollout-plan', {
  unit: 'ms per call',
  replicas: REPLICAS,
  seed: SEED,
  limits,
  goal: 'P95 of each at most 5 ms',
  stages: Object.fromEntries(
    Object.entries(stages).map(([name, stage]) => [
      name,
      {
        decides: outcomeOf(stage),
        nextSteps: summarise(timed(() => nextSteps(stage))),
        stepsAhead: layOut(stage).steps.length,
        layOut: summarise(timed(() => layOut(stage))),
      },
    ]),
  ),
  violations: violations.texts,
});
process.exit(violations.exitCode());
