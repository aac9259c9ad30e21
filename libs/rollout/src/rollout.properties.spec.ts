import fc from 'fast-check';
import { assert } from '@cloudless/base';
import {
  predictRollout,
  decideNextSteps,
  resolveLimits,
  type RolloutPrediction,
  type RolloutObserved,
  type RolloutReplica,
} from './index.js';
import { anObserved, someReplicas } from './testing/builders.js';
import { getMaxLive, countAvailable, permitsStopFirst } from './testing/invariants.js';
import {
  arbEvent,
  arbObserved,
  arbSpec,
  applyEvent,
  ROLLOUT_KINDS,
} from './testing/arbitraries.js';
import { SimulatedWorkload } from './testing/simulated-workload.js';

/**
 * Most decisions that a workload of this size may need: each stops or creates at least one replica,
 * with waits in between.
 */
const MAX_DECISIONS = 200;

/** Number of applied and checked steps. */
let steps = 0;

/**
 * Applies decisions, lets time pass without failures, and grants every permission, until no step is
 * possible.
 * @returns `converged`, or the reason of a wait that only a change of the spec can end.
 */
function runUntilSettled(workload: SimulatedWorkload): string {
  for (let round = 0; round < MAX_DECISIONS; round += 1) {
    const decision = workload.applyNextDecision();
    if (decision.kind === 'converged') return 'converged';
    if (decision.kind === 'waiting' && decision.wakeOn.kind === 'spec') return decision.reason.kind;
    if (decision.kind === 'waiting' && decision.wakeOn.kind === 'permission')
      workload.grantPermission();
    workload.settle();
  }
  return 'no end';
}

/**
 * Checks that a workload has exactly the wanted replicas, or impossible limits.
 * @param end - Result of {@link runUntilSettled}.
 */
function checkEnd(workload: SimulatedWorkload, end: string): void {
  const { want, minAvailable, maxSurge, version, strategy, globalTargets } = workload.observe();
  if (end === 'impossibleLimits') {
    assert(
      maxSurge === 0 && minAvailable === want && strategy?.kind === 'rollingUpdate',
      'limits that allow a step',
    );
    return;
  }
  assert(end === 'converged', `ends: ${end}`);
  assert(workload.live.length === want, `${workload.live.length} of ${want} live`);
  assert(
    workload.live.every(
      (replica) =>
        replica.available &&
        replica.version === version &&
        !replica.draining &&
        replica.forced !== true,
    ),
    'an unwanted replica is left',
  );
  const nodeIds = workload.live.map(({ nodeId }) => nodeId ?? '').sort();
  assert(
    globalTargets === undefined ||
      want === 0 ||
      nodeIds.join() === [...globalTargets].sort().join(),
    `replicas on ${nodeIds.join()}`,
  );
  assert(
    strategy?.kind !== 'blueGreen' || strategy.activeVersion === version || want === 0,
    'the new set does not serve',
  );
}

describe.each(ROLLOUT_KINDS)('decideNextSteps, %s, with random input', (kind) => {
  it('keeps minAvailable, the maximum, wanted replicas and the rules of the strategy', () => {
    fc.assert(
      fc.property(
        arbObserved(kind),
        fc.array(arbEvent, { maxLength: 150, size: 'max' }),
        (observed, events) => {
          const workload = new SimulatedWorkload(observed);
          for (const event of events) applyEvent(workload, event);
          steps += workload.steps;
        },
      ),
      { numRuns: 2_000 },
    );
  });

  it('reaches the wanted count of the wanted version once failures stop, or reports impossible limits', () => {
    fc.assert(
      fc.property(arbObserved(kind), fc.array(arbEvent, { maxLength: 30 }), (observed, events) => {
        const workload = new SimulatedWorkload(observed);
        for (const event of events) applyEvent(workload, event);
        workload.update({ paused: false });
        checkEnd(workload, runUntilSettled(workload));
        steps += workload.steps;
      }),
      { numRuns: 2_500 },
    );
  });

  it('reaches the wanted count while paused and stops no replica for its version', () => {
    fc.assert(
      fc.property(arbObserved(kind), (observed) => {
        const workload = new SimulatedWorkload({ ...observed, paused: true });
        const end = runUntilSettled(workload);
        const { want, maxSurge, strategy } = workload.observe();
        assert(['converged', 'paused'].includes(end), `ends: ${end}`);
        const serving =
          strategy?.kind === 'blueGreen'
            ? countAvailable(workload.observe())
            : workload.live.length;
        const maxServing = strategy?.kind === 'rollingUpdate' && want > 0 ? want + maxSurge : want;
        assert(serving >= want && serving <= maxServing, `${serving} of ${want}`);
        steps += workload.steps;
      }),
      { numRuns: 500 },
    );
  });

  it('makes progress while replicas become available and stop one at a time, in any order', () => {
    fc.assert(
      fc.property(arbObserved(kind), fc.infiniteStream(fc.nat(100)), (observed, choices) => {
        const workload = new SimulatedWorkload({ ...observed, paused: false });
        for (let round = 0; round < MAX_DECISIONS * 2; round += 1) {
          const decision = workload.applyNextDecision();
          if (decision.kind === 'steps') continue;
          if (decision.kind === 'converged' || decision.wakeOn.kind === 'spec')
            return void (steps += workload.steps);
          if (decision.wakeOn.kind === 'permission') workload.grantPermission();
          else progressOneReplica(workload, choices.next().value);
        }
        throw new Error('no end');
      }),
      { numRuns: 700 },
    );
  });

  it('does not depend on the order of replicas', () => {
    fc.assert(
      fc.property(arbObserved(kind), fc.nat(11), (observed, turn) => {
        const { replicas, globalTargets } = observed;
        const reordered = [...replicas.slice(turn), ...replicas.slice(0, turn)].reverse();
        const other = {
          ...observed,
          replicas: reordered,
          ...(globalTargets === undefined ? {} : { globalTargets: [...globalTargets].reverse() }),
        };
        expect(decideNextSteps(other)).toEqual(decideNextSteps(observed));
      }),
      { numRuns: 500 },
    );
  });

  it('makes the decisions that predictRollout predicts, within minAvailable and the maximum', () => {
    fc.assert(
      fc.property(arbObserved(kind), (observed) => {
        const prediction = predictRollout(observed, {});
        const simulated = runDecisions(observed);
        expect(sortForGlobalTargets(observed, toStepTexts(prediction))).toEqual(
          sortForGlobalTargets(observed, simulated.steps),
        );
        const counts = prediction.steps
          .filter(({ step }) => step.kind !== 'stepReached')
          .map(({ available, live }) => [available, live]);
        expect({ counts, end: prediction.outcome.kind }).toEqual({
          counts: simulated.counts,
          end: simulated.end,
        });
        const connected = assumeAllConnected(observed);
        const minAvailable = Math.min(countAvailable(connected), observed.minAvailable);
        const live = observed.replicas.filter((replica) => !replica.lost).length;
        assert(
          observed.strategy?.kind === 'recreate' || prediction.lowestAvailable >= minAvailable,
          `${prediction.lowestAvailable} of ${minAvailable}`,
        );
        assert(
          prediction.highestLive <= Math.max(live, getMaxLive(observed)),
          `${prediction.highestLive} live`,
        );
      }),
      { numRuns: 700 },
    );
  });
});

describe.each(['rolling update', 'canary', 'recreate'] as const)(
  'decideNextSteps, %s, with max_surge 0 and a minAvailable below the wanted count',
  (kind) => {
    it('never has more live replicas than wanted during drains, forced drains, updates and pauses, and completes', () => {
      fc.assert(
        fc.property(
          arbObserved(kind),
          fc.array(arbEvent.filter(keepsWantedCount), { maxLength: 100, size: 'max' }),
          (observed, events) => {
            const { want } = observed;
            fc.pre(permitsStopFirst({ ...observed, maxSurge: 0 }));
            const replicas = someReplicas(want, { version: observed.version });
            const workload = new SimulatedWorkload({ ...observed, maxSurge: 0, replicas });
            const checkLive = (): void =>
              assert(workload.live.length <= want, `${workload.live.length} live of ${want}`);
            for (const event of events) {
              applyEvent(workload, event);
              checkLive();
            }
            workload.update({ paused: false });
            checkEnd(workload, runUntilSettled(workload));
            checkLive();
            steps += workload.steps;
          },
        ),
        { numRuns: 1_000 },
      );
    });
  },
);

/** Returns false for events that change the wanted count or make nodes lost, which may return. */
const keepsWantedCount = ({ kind }: { readonly kind: number }): boolean =>
  ![2, 3, 6, 7].includes(kind);

/** Makes one replica available, or confirms one stop. */
function progressOneReplica(workload: SimulatedWorkload, choice: number): void {
  const { replicas } = workload.observe();
  const pending = replicas.flatMap((replica, index) =>
    !replica.lost && (replica.desired === 'stopped' || !replica.available) ? [index] : [],
  );
  const chosen = pending[choice % pending.length];
  assert(chosen !== undefined, 'there is something to wait for');
  if (replicas[chosen]?.desired === 'stopped') workload.removeReplica(chosen);
  else workload.changeReplica(chosen, { available: true, notYetAvailable: false });
}

/** Predictions assume that silent nodes reconnect. */
const assumeAllConnected = (observed: RolloutObserved): RolloutObserved => ({
  ...observed,
  replicas: observed.replicas.map((one): RolloutReplica =>
    one.notYetAvailable === true ? { ...one, available: true, notYetAvailable: false } : one,
  ),
});

/** Applies every decision of `decideNextSteps`, which `predictRollout` has to predict. */
function runDecisions(observed: RolloutObserved) {
  const workload = new SimulatedWorkload(assumeAllConnected(observed));
  const stepTexts: string[] = [];
  /** The available and the live replicas after each step. */
  const counts: (readonly [number, number])[] = [];
  for (let round = 0; round < MAX_DECISIONS; round += 1) {
    const decision = decideNextSteps(workload.observe());
    if (decision.kind === 'converged') return { steps: stepTexts, counts, end: 'completes' };
    if (decision.kind === 'waiting' && decision.wakeOn.kind === 'spec')
      return { steps: stepTexts, counts, end: 'stuck' };
    if (decision.kind === 'waiting' && decision.wakeOn.kind === 'permission')
      workload.grantPermission();
    if (decision.kind === 'waiting' && decision.wakeOn.kind === 'replicas') workload.settle();
    if (decision.kind !== 'steps') continue;
    for (const step of decision.steps) {
      workload.applyStep(step);
      stepTexts.push(JSON.stringify(step));
      counts.push([countReachable(workload.observe()), workload.live.length]);
    }
    workload.settle();
  }
  throw new Error('no end');
}

/**
 * The available replicas that users can reach: under RECREATE also those that do not count for
 * `minAvailable`.
 */
const countReachable = (observed: RolloutObserved): number =>
  countAvailable(
    observed.strategy?.kind === 'recreate'
      ? { ...observed, strategy: { kind: 'rollingUpdate' } }
      : observed,
  );

/** The steps of a prediction, with the replica ids of {@link SimulatedWorkload}. */
function toStepTexts({ steps: predicted }: RolloutPrediction): readonly string[] {
  const ids = new Map<string, string>();
  return predicted.flatMap(({ step }, index) => {
    if (step.kind === 'stepReached') return [];
    if (step.kind === 'createReplica') ids.set(`planned-${index}`, `w-${1_001 + ids.size}`);
    const known =
      step.kind === 'stopReplica'
        ? { ...step, replicaId: ids.get(step.replicaId) ?? step.replicaId }
        : step;
    return [JSON.stringify(known)];
  });
}

/** Sorts the steps of a GLOBAL workload: the order of its empty target nodes may differ. */
const sortForGlobalTargets = (
  { globalTargets }: RolloutObserved,
  all: readonly string[],
): readonly string[] => (globalTargets === undefined ? all : [...all].sort());

describe('decideNextSteps, rolling update', () => {
  it('always has a step when the limits allow one, and keeps minAvailable until the end', () => {
    fc.assert(
      fc.property(arbSpec, fc.nat(9), (spec, count) => {
        const limits = resolveLimits(spec);
        fc.pre(limits.maxSurge > 0 || limits.minAvailable < limits.want);
        const workload = new SimulatedWorkload(
          anObserved({ ...limits, replicas: someReplicas(count) }),
        );
        expect(runUntilSettled(workload)).toBe('converged');
        steps += workload.steps;
      }),
      { numRuns: 1_000 },
    );
  });

  it('takes no step when all wanted replicas of the version exist, ready or not', () => {
    fc.assert(
      fc.property(
        fc.array(
          fc.constantFrom<Partial<RolloutReplica>>(
            { available: true },
            { available: false },
            { available: false, notYetAvailable: true },
          ),
          { maxLength: 9 },
        ),
        (states) => {
          const replicas = states.map((state, index) => ({
            ...someReplicas(1, { version: 2 }, index)[0]!,
            ...state,
          }));
          expect(decideNextSteps(anObserved({ want: replicas.length, replicas })).kind).not.toBe(
            'steps',
          );
        },
      ),
    );
  });
});

it('the tests above have checked at least 200 000 steps', () => {
  expect(steps).toBeGreaterThanOrEqual(200_000);
});
