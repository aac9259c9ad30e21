import {
  predictRollout,
  resolveLimits,
  type PredictedStep,
  type PredictionGrants,
  type RolloutObserved,
} from '../index.js';
import { aReplica, anObserved, someReplicas } from '../testing/builders.js';

const formatStep = (step: PredictedStep['step']): string => {
  if (step.kind === 'stopReplica') return `-${step.replicaId}`;
  if (step.kind === 'createReplica')
    return step.nodeId === undefined ? `+v${step.version}` : `+v${step.version}@${step.nodeId}`;
  return step.kind === 'switchVersion' ? `=v${step.version}` : `wait at ${step.updated}`;
};

/**
 * Formats the steps: `+` creates, `=` switches, `-id` stops; each with its decision, and the
 * available and live replicas after it.
 */
const formatPrediction = (observed: RolloutObserved, grants?: PredictionGrants): string[] =>
  predictRollout(observed, grants).steps.map(
    ({ step, decision, available, live }) =>
      `${decision}: ${formatStep(step)} ${available}/${live}`,
  );

describe('predictRollout', () => {
  it('predicts an update that creates before it stops', () => {
    expect(formatPrediction(anObserved({ minAvailable: 3, replicas: someReplicas(3) }))).toEqual([
      '0: +v2 3/4',
      '1: -w-3 3/4',
      '2: +v2 3/4',
      '3: -w-2 3/4',
      '4: +v2 3/4',
      '5: -w-1 3/4',
    ]);
  });

  it('predicts an update that creates and stops in one decision', () => {
    const prediction = predictRollout(anObserved({ replicas: someReplicas(3) }));
    expect(prediction).toMatchObject({
      outcome: { kind: 'completes' },
      lowestAvailable: 2,
      highestLive: 4,
    });
  });

  it('predicts a stuck rollout without a step when the limits are impossible', () => {
    const limits = resolveLimits({ desired: 3, maxSurge: 0, minAvailable: 3 });
    expect(predictRollout(anObserved({ ...limits, replicas: someReplicas(3) }))).toEqual({
      steps: [],
      outcome: {
        kind: 'stuck',
        reason: {
          kind: 'impossibleLimits',
          text: 'max_surge 0 and min_available 3 of 3 leave no possible move',
        },
      },
      lowestAvailable: 3,
      highestLive: 3,
    });
  });

  it('does not count unready and lost replicas as available at the start', () => {
    const replicas = [aReplica(1), aReplica(2, { available: false }), aReplica(3, { lost: true })];
    expect(predictRollout(anObserved({ want: 2, minAvailable: 1, replicas }))).toMatchObject({
      lowestAvailable: 1,
      outcome: { kind: 'completes' },
    });
  });

  it('ends at a canary step unless the grants continue past it', () => {
    const canary = {
      baseVersion: 1,
      strategy: { kind: 'rollingUpdate', updated: 1 },
      replicas: someReplicas(3),
    } as const;
    expect(formatPrediction(anObserved(canary))).toEqual(['0: +v2 3/4', '0: -w-3 2/4']);
    expect(predictRollout(anObserved(canary)).outcome).toEqual({
      kind: 'waits',
      reason: {
        kind: 'stepReached',
        text: '1 of 3 replicas run version 2, as the canary step requires',
      },
    });
    expect(formatPrediction(anObserved(canary), { canarySteps: [2] })).toEqual([
      '0: +v2 3/4',
      '0: -w-3 2/4',
      '1: wait at 1 3/3',
      '2: +v2 3/4',
      '2: -w-2 2/4',
      '3: wait at 2 3/3',
      '4: +v2 3/4',
      '4: -w-1 2/4',
    ]);
  });

  it('predicts the new set, the switch and the stop of the previous set of a blue/green rollout', () => {
    const strategy = {
      kind: 'blueGreen',
      activeVersion: 1,
      maySwitch: false,
      keepVersion: 1,
    } as const;
    const observed = anObserved({ want: 2, strategy, replicas: someReplicas(2) });
    expect(formatPrediction(observed)).toEqual(['0: +v2 2/3', '0: +v2 2/4']);
    expect(predictRollout(observed).outcome).toMatchObject({
      kind: 'waits',
      reason: { kind: 'promotion' },
    });
    expect(formatPrediction(observed, {})).toEqual([
      '0: +v2 2/3',
      '0: +v2 2/4',
      '1: =v2 2/4',
      '2: -w-2 2/4',
      '2: -w-1 2/4',
    ]);
    const after = predictRollout({
      ...observed,
      strategy: { ...strategy, activeVersion: 2 },
      replicas: [...someReplicas(2), ...someReplicas(2, { version: 2 }, 9)],
    });
    expect(after).toMatchObject({
      steps: [],
      outcome: { kind: 'waits', reason: { kind: 'kept' } },
    });
  });

  it('predicts no available replica during RECREATE', () => {
    const observed = anObserved({
      want: 2,
      strategy: { kind: 'recreate' },
      replicas: someReplicas(2),
    });
    expect(formatPrediction(observed)).toEqual([
      '0: -w-2 1/2',
      '0: -w-1 0/2',
      '1: +v2 0/1',
      '1: +v2 0/2',
    ]);
    expect(predictRollout(observed)).toMatchObject({
      outcome: { kind: 'completes' },
      lowestAvailable: 0,
      highestLive: 2,
    });
  });

  it('names the target node of each creation of a GLOBAL workload', () => {
    const replicas = ['n1', 'n2'].map((nodeId, index) => aReplica(index + 1, { nodeId }));
    expect(
      formatPrediction(
        anObserved({ want: 2, minAvailable: 2, globalTargets: ['n1', 'n2'], replicas }),
      ),
    ).toEqual(['0: +v2@n2 2/3', '1: -w-2 2/3', '2: +v2@n1 2/3', '3: -w-1 2/3']);
  });

  it('predicts a stuck rollout while the rollout is paused', () => {
    expect(predictRollout(anObserved({ paused: true, replicas: someReplicas(3) }))).toMatchObject({
      steps: [],
      outcome: {
        kind: 'stuck',
        reason: { kind: 'paused', text: 'paused with 3 replicas of other versions' },
      },
    });
  });

  it('predicts a rollout of 10 000 replicas, one at a time', () => {
    const limits = resolveLimits({ desired: 10_000 });
    const prediction = predictRollout(anObserved({ ...limits, replicas: someReplicas(10_000) }));
    expect(prediction).toMatchObject({
      outcome: { kind: 'completes' },
      lowestAvailable: 9_999,
      highestLive: 10_001,
    });
    expect(prediction.steps).toHaveLength(20_000);
  });
});
