import { create, type MessageInitShape } from '@bufbuild/protobuf';
import {
  ReplicaStatus_Phase as ReplicaPhase,
  RolloutStatus_Phase as Phase,
  type Rollout_StepSchema,
  Rollout_Strategy as Strategy,
} from '@cloudless/api';
import {
  ControlRecordSchema,
  ReplicaRecordSchema,
  WorkloadRecordSchema,
  type RolloutRecordSchema,
} from '@cloudless/api/store';
import { createSnapshotView } from '@cloudless/cluster-state';
import { aSpec } from '../testing/test-bed.js';
import { computeVersionWeights } from './version-weights.js';

interface Canary {
  readonly steps?: readonly MessageInitShape<typeof Rollout_StepSchema>[];
  /** Ready replicas of the new and of the old version. */
  readonly ready: readonly [number, number];
  readonly rollout?: Omit<MessageInitShape<typeof RolloutRecordSchema>, '$typeName' | '$unknown'>;
  readonly phase?: Phase;
}

const STEPS = [
  { replicas: 1, weightPercent: 10 },
  { replicas: 4, weightPercent: 50 },
];
const reached = { stepReachedAt: { seconds: 1n } };

/** Returns the percentage of the new version in a canary of ten replicas. */
function percentOf({ steps = STEPS, ready, rollout, phase }: Canary): number | undefined {
  const workload = create(WorkloadRecordSchema, {
    ...{ uid: 'web', namespace: 'default', name: 'web', version: 2 },
    spec: aSpec({ replicas: 10, rollout: { steps: [...steps] } }),
  });
  const replicas = ready.flatMap((count, group) =>
    Array.from({ length: count }, (_, index) =>
      create(ReplicaRecordSchema, {
        ...{ id: `${group}-${index}`, uid: 'web', sequence: BigInt(group * 100 + index) },
        ...{ version: group === 0 ? 2 : 1, nodeId: 'n', desiredRunning: true, ready: true },
        phase: ReplicaPhase.RUNNING,
      }),
    ),
  );
  const control = create(ControlRecordSchema, {
    ...{ uid: 'web', activeVersion: 1, rolloutPhase: phase ?? Phase.IN_PROGRESS },
    rollout: { version: 2, fromVersion: 1, strategy: Strategy.ROLLING_UPDATE, ...rollout },
  });
  const view = createSnapshotView({
    ...{ revision: 1n, nodes: [], versions: [], replicas },
    ...{ workloads: [workload], controls: [control] },
  });
  const weights = computeVersionWeights(view, workload);
  if (weights === undefined) return undefined;
  const { version, newWeight, otherWeight } = weights;
  const [first, second] = version === 2 ? [newWeight, otherWeight] : [otherWeight, newWeight];
  const [newSum, oldSum] = [first * ready[0], second * ready[1]];
  return Math.round((1_000 * newSum) / (newSum + oldSum)) / 10;
}

describe('computeVersionWeights', () => {
  it.each<[string, Canary, number | undefined]>([
    ['its percentage at a step', { ready: [1, 9], rollout: reached }, 10],
    [
      'its percentage at a later step',
      { ready: [4, 6], rollout: { ...reached, stepsDone: 1 } },
      50,
    ],
    [
      'its percentage at a step with only a weight, whose replicas are the share rounded up',
      { steps: [{ weightPercent: 15 }], ready: [2, 8], rollout: reached },
      15,
    ],
    [
      'more with each replica on the way to a step with only a weight',
      { steps: [{ weightPercent: 40 }], ready: [1, 9] },
      10,
    ],
    ['more with each replica on the way', { ready: [2, 8], rollout: { stepsDone: 1 } }, 23.3],
    ['no more than at the step on the way', { ready: [9, 1], rollout: { stepsDone: 1 } }, 50],
    [
      'more with each replica after the last step',
      { ready: [7, 3], rollout: { stepsDone: 2 } },
      75,
    ],
    [
      'nothing at weight 0',
      { steps: [{ replicas: 1, weightPercent: 0 }], ready: [1, 9], rollout: reached },
      0,
    ],
    ['the same share without old replicas', { ready: [10, 0], rollout: reached }, undefined],
    ['the same share without new replicas', { ready: [0, 10], rollout: reached }, undefined],
    [
      'the same share without weighted steps',
      { steps: [{ replicas: 1 }], ready: [1, 9] },
      undefined,
    ],
    [
      'the same share in a rollback without replicas of the failed version',
      { ready: [1, 9], rollout: { rollsBack: 3 } },
      undefined,
    ],
    [
      'everything in the rollback of another version while min_available are ready',
      { ready: [9, 1], rollout: { rollsBack: 1 } },
      100,
    ],
    [
      'its part of min_available in the rollback of another version',
      { ready: [3, 7], rollout: { rollsBack: 1 } },
      33.3,
    ],
    [
      'at least the share of its replicas in the rollback of another version',
      { ready: [1, 2], rollout: { rollsBack: 1 } },
      33.3,
    ],
    [
      'everything in a rollback also without weighted steps',
      { steps: [], ready: [9, 3], rollout: { rollsBack: 1 } },
      100,
    ],
    [
      'nothing as soon as the version has failed',
      { ready: [1, 9], rollout: { ...reached, rollsBack: 2 } },
      0,
    ],
    [
      'the same share after the rollback',
      { ready: [9, 1], rollout: { rollsBack: 1 }, phase: Phase.ROLLED_BACK },
      undefined,
    ],
    [
      'the same share in a rollback of BLUE_GREEN, where one version alone receives connections',
      { ready: [9, 1], rollout: { rollsBack: 1, strategy: Strategy.BLUE_GREEN } },
      undefined,
    ],
    [
      'the same share in a first deployment',
      { ready: [1, 9], rollout: { fromVersion: 0 } },
      undefined,
    ],
    ['the same share after the rollout', { ready: [9, 1], phase: Phase.COMPLETED }, undefined],
    [
      'its percentage while the canary is paused',
      { ready: [1, 9], rollout: reached, phase: Phase.PAUSED },
      10,
    ],
  ])('gives the new version %s', (_, canary, expected) => {
    expect(percentOf(canary)).toBe(expected);
  });
});
