import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import {
  Rollout_Promotion as Promotion,
  Rollout_Strategy as Strategy,
  WorkloadSpecSchema,
  type RolloutSchema,
} from '../gen.js';
import { validateRollout } from './rollout-rules.js';

type Init = MessageInitShape<typeof RolloutSchema>;

const violationsOf = (rollout: Init) =>
  [...validateRollout(create(WorkloadSpecSchema, { rollout }))].map(
    ({ field, message }) => `${field}: ${message}`,
  );
const { BLUE_GREEN, RECREATE } = Strategy;
const MANUAL = Promotion.MANUAL;
const NOT_LARGER =
  'spec.rollout.steps[1]: must be larger than the step before it, or as large with a larger weight_percent';

describe('validateRollout', () => {
  it.each<{ name: string; rollout: Init; violation: string }>([
    {
      name: 'a promotion without BLUE_GREEN',
      rollout: { promotion: MANUAL },
      violation:
        'spec.rollout.promotion: only BLUE_GREEN has a promotion of the switch; for a rolling update set the promotion of spec.rollout.steps',
    },
    {
      name: 'a pause_duration without BLUE_GREEN',
      rollout: { strategy: RECREATE, pauseDuration: durationFromMs(1) },
      violation:
        'spec.rollout.pause_duration: only BLUE_GREEN keeps the old version; set spec.rollout.strategy',
    },
    {
      name: 'max_surge with BLUE_GREEN',
      rollout: { strategy: BLUE_GREEN, maxSurge: 2 },
      violation:
        'spec.rollout.max_surge: only ROLLING_UPDATE supports a surge; BLUE_GREEN starts all new replicas at once',
    },
    {
      name: 'max_surge 0 with RECREATE',
      rollout: { strategy: RECREATE, maxSurge: 0 },
      violation:
        'spec.rollout.max_surge: only ROLLING_UPDATE supports a surge; RECREATE stops all replicas first',
    },
    {
      name: 'canary steps with BLUE_GREEN',
      rollout: { strategy: BLUE_GREEN, steps: [{ replicas: 1 }] },
      violation: 'spec.rollout.steps: only ROLLING_UPDATE has canary steps, not BLUE_GREEN',
    },
    {
      name: 'max_failed_new together with max_failed_new_percent',
      rollout: { maxFailedNew: 1, maxFailedNewPercent: 10 },
      violation:
        'spec.rollout.max_failed_new_percent: cannot be combined with max_failed_new; remove one of them',
    },
    {
      name: 'a step without replicas and percent',
      rollout: { steps: [{ wait: durationFromMs(1) }] },
      violation:
        'spec.rollout.steps[0]: needs either replicas or percent, above 0, or only weight_percent',
    },
    {
      name: 'a step with both replicas and percent',
      rollout: { steps: [{ replicas: 1, percent: 10 }] },
      violation:
        'spec.rollout.steps[0]: needs either replicas or percent, above 0, or only weight_percent',
    },
    {
      name: 'a step with replicas, percent and weight',
      rollout: { steps: [{ replicas: 1, percent: 10, weightPercent: 10 }] },
      violation:
        'spec.rollout.steps[0]: needs either replicas or percent, above 0, or only weight_percent',
    },
    {
      name: 'a step with only a weight that is equal to the weight of the step before',
      rollout: { steps: [{ weightPercent: 10 }, { weightPercent: 10 }] },
      violation: NOT_LARGER,
    },
    {
      name: 'a step with only a weight below the percentage of a step without a weight',
      rollout: { steps: [{ percent: 50 }, { weightPercent: 20 }] },
      violation: NOT_LARGER,
    },
    {
      name: 'a step with a percentage below the weight of a step with only a weight',
      rollout: { steps: [{ weightPercent: 50 }, { percent: 20, weightPercent: 60 }] },
      violation: NOT_LARGER,
    },
    {
      name: 'a MANUAL step with a wait',
      rollout: { steps: [{ replicas: 1, promotion: MANUAL, wait: durationFromMs(1) }] },
      violation:
        'spec.rollout.steps[0].wait: a MANUAL step waits for a promotion, not for a time; remove one of them',
    },
    {
      name: 'a step with no more replicas than the step before',
      rollout: { steps: [{ replicas: 2 }, { replicas: 2 }] },
      violation: NOT_LARGER,
    },
    {
      name: 'a step with a smaller percentage than the step before',
      rollout: { steps: [{ percent: 50 }, { percent: 25 }] },
      violation: NOT_LARGER,
    },
    {
      name: 'a step with a smaller weight than the step before',
      rollout: {
        steps: [
          { replicas: 1, weightPercent: 50 },
          { replicas: 2, weightPercent: 10 },
        ],
      },
      violation:
        'spec.rollout.steps[1].weight_percent: must not be smaller than that of the step before it',
    },
  ])('rejects $name', ({ rollout, violation }) => {
    expect(violationsOf(rollout)).toEqual([violation]);
  });

  it.each<{ name: string; rollout: Init }>([
    {
      name: 'the defaults, with any strategy',
      rollout: { strategy: BLUE_GREEN, maxSurge: 1, pauseDuration: durationFromMs(0) },
    },
    {
      name: 'canary steps of one size with growing weights',
      rollout: {
        steps: [
          { replicas: 2, weightPercent: 10 },
          { replicas: 2, weightPercent: 50 },
        ],
      },
    },
    {
      name: 'canary steps with only weights',
      rollout: { steps: [{ weightPercent: 0 }, { weightPercent: 10 }, { weightPercent: 100 }] },
    },
    {
      name: 'steps with only weights after more replicas with a smaller weight',
      rollout: {
        steps: [{ percent: 50, weightPercent: 10 }, { weightPercent: 20 }, { percent: 60 }],
      },
    },
    {
      name: 'a step with only a weight, and one in replicas',
      rollout: { steps: [{ weightPercent: 10 }, { replicas: 1, weightPercent: 10 }] },
    },
    {
      name: 'canary steps',
      rollout: {
        steps: [
          { replicas: 1, promotion: MANUAL },
          { percent: 25, wait: durationFromMs(60_000) },
        ],
      },
    },
    {
      name: 'BLUE_GREEN with manual promotion',
      rollout: { strategy: BLUE_GREEN, promotion: MANUAL, pauseDuration: durationFromMs(1) },
    },
    {
      name: 'RECREATE with min_available for drains',
      rollout: { strategy: RECREATE, minAvailable: 1 },
    },
  ])('accepts $name', ({ rollout }) => {
    expect(violationsOf(rollout)).toEqual([]);
  });
});
