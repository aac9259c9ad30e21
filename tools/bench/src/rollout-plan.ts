// Rollout decisions for a workload of 10 000 replicas at several stages: the next steps, and the
// whole predicted rollout.
import { createSeededRandom, toReplicaId } from '@cloudless/base';
import {
  predictRollout,
  decideNextSteps,
  resolveLimits,
  type RolloutObserved,
  type RolloutReplica,
} from '@cloudless/rollout';
import { systemClock } from '@cloudless/app-kit';
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

type ReplicaFields = Partial<RolloutReplica> & Pick<RolloutReplica, 'version'>;

let sequence = 0;
const createReplicas = (count: number, replica: ReplicaFields): readonly RolloutReplica[] =>
  Array.from({ length: count }, () => {
    sequence += 1;
    const id = toReplicaId(`w-${sequence}`);
    return {
      id,
      createdSequence: sequence,
      available: true,
      desired: 'running',
      lost: false,
      draining: false,
      ...replica,
    };
  });

/** Returns the replicas in random order, as a store returns them. */
function shuffle(replicas: readonly RolloutReplica[]): readonly RolloutReplica[] {
  const random = createSeededRandom(SEED);
  return replicas
    .map((replica) => ({ replica, at: random.next() }))
    .sort((a, b) => a.at - b.at)
    .map(({ replica }) => replica);
}

const createObserved = (...replicas: readonly (readonly RolloutReplica[])[]): RolloutObserved => ({
  ...limits,
  version: NEW,
  replicas: shuffle(replicas.flat()),
});

const half = REPLICAS / 2;
const middle = [
  createReplicas(half, { version: NEW }),
  createReplicas(BATCH, { version: NEW, available: false }),
  createReplicas(BATCH, { version: OLD, desired: 'stopped', available: false }),
] as const;

const stages: Readonly<Record<string, RolloutObserved>> = {
  start: createObserved(createReplicas(REPLICAS, { version: OLD })),
  middleBetweenBatches: createObserved(
    createReplicas(half, { version: NEW }),
    createReplicas(half, { version: OLD }),
  ),
  middleOfABatch: createObserved(...middle, createReplicas(half - BATCH, { version: OLD })),
  middleWhileDraining: createObserved(
    ...middle,
    createReplicas(half - BATCH - DRAINING, { version: OLD }),
    createReplicas(DRAINING / 2, { version: OLD, draining: true }),
    createReplicas(DRAINING / 2, { version: NEW, draining: true }),
  ),
  drainOfTheNewVersion: createObserved(
    createReplicas(REPLICAS - DRAINING, { version: NEW }),
    createReplicas(DRAINING, { version: NEW, draining: true }),
  ),
  canaryStep: {
    ...createObserved(createReplicas(REPLICAS, { version: OLD })),
    baseVersion: OLD,
    strategy: { kind: 'rollingUpdate', updated: 100 },
  },
  blueGreenSwitch: {
    ...createObserved(
      createReplicas(REPLICAS, { version: OLD }),
      createReplicas(REPLICAS, { version: NEW }),
    ),
    strategy: { kind: 'blueGreen', activeVersion: OLD, maySwitch: true },
  },
  done: createObserved(createReplicas(REPLICAS, { version: NEW })),
};

/**
 * Runs a call repeatedly.
 * @returns The duration of each call, milliseconds.
 */
function measureCalls(call: () => unknown): readonly number[] {
  for (let count = 0; count < WARM_UP_CALLS; count += 1) call();
  return Array.from({ length: CALLS }, () => {
    const startedAt = systemClock.now();
    call();
    return systemClock.now() - startedAt;
  });
}

/** Describes the decision at a stage, which shows that the stage is the intended one. */
function summariseOutcome(stage: RolloutObserved): string {
  const decision = decideNextSteps(stage);
  if (decision.kind === 'steps') return `${decision.steps.length} steps`;
  return decision.kind === 'waiting' ? decision.reason.text : decision.kind;
}

const violations = new Violations();
for (const [name, stage] of Object.entries(stages)) {
  const [decision, reversed] = [
    decideNextSteps(stage),
    decideNextSteps({ ...stage, replicas: [...stage.replicas].reverse() }),
  ];
  violations.check(
    JSON.stringify(decision) === JSON.stringify(reversed),
    `${name}: another order of the replicas decides otherwise`,
  );
  violations.check(
    (decision.kind === 'converged') === (name === 'done'),
    `${name}: decides ${summariseOutcome(stage)}`,
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
        decides: summariseOutcome(stage),
        nextSteps: summarise(measureCalls(() => decideNextSteps(stage))),
        stepsAhead: predictRollout(stage).steps.length,
        layOut: summarise(measureCalls(() => predictRollout(stage))),
      },
    ]),
  ),
  violations: violations.texts,
});
process.exit(violations.exitCode());
