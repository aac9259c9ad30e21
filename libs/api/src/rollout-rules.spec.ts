import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { rolloutRules } from './rollout-rules.js';
import {
  Rollout_Promotion as Promotion,
  Rollout_Strategy as Strategy,
  WorkloadSpecSchema,
  type RolloutSchema,
} from './gen.js';

type Init = MessageInitShape<typeof RolloutSchema>;

const violationsOf = (rollout: Init) =>
  [...rolloutRules(create(WorkloadSpecSchema, { rollout }))].map(
    ({ field, message }) => `${field}: ${message}`,
  );
const { BLUE_GREEN, RECREATE } = Strategy;
const MANUAL = Promotion.MANUAL;

describe('rollouts', () => {
  it.each<{ name: string; rollout: Init; refused: string }>([
    {
      name: 'a promotion without a switch',
      rollout: { promotion: MANUAL },
      refused:
        'spec.rollout.promotion: only BLUE_GREEN has a switch to promote; a rolling update has spec.rollout.steps, each with its own promotion',
    },
    {
      name: 'a pause without a former version',
      rollout: { strategy: RECREATE, pauseDuration: durationFromMs(1) },
      refused:
        'spec.rollout.pause_duration: only BLUE_GREEN keeps the former version; set spec.rollout.strategy',
    },
    {
      name: 'a surge of blue/green',
      rollout: { strategy: BLUE_GREEN, maxSurge: 2 },
      refused:
        'spec.rollout.max_surge: only ROLLING_UPDATE adds replicas bit by bit; BLUE_GREEN makes the whole new set at once',
    },
    {
      name: 'a surge of 0 of recreate',
      rollout: { strategy: RECREATE, maxSurge: 0 },
      refused:
        'spec.rollout.max_surge: only ROLLING_UPDATE adds replicas bit by bit; RECREATE stops all replicas first',
    },
    {
      name: 'canary steps of blue/green',
      rollout: { strategy: BLUE_GREEN, steps: [{ replicas: 1 }] },
      refused: 'spec.rollout.steps: only ROLLING_UPDATE has canary steps, not BLUE_GREEN',
    },
    {
      name: 'a step without a size',
      rollout: { steps: [{ wait: durationFromMs(1) }] },
      refused: 'spec.rollout.steps[0]: needs either replicas or percent, above 0',
    },
    {
      name: 'a step of two sizes',
      rollout: { steps: [{ replicas: 1, percent: 10 }] },
      refused: 'spec.rollout.steps[0]: needs either replicas or percent, above 0',
    },
    {
      name: 'a step that waits for two things',
      rollout: { steps: [{ replicas: 1, promotion: MANUAL, wait: durationFromMs(1) }] },
      refused:
        'spec.rollout.steps[0].wait: a MANUAL step waits for a promotion and takes no time; leave one of them out',
    },
    {
      name: 'fewer replicas than before',
      rollout: { steps: [{ replicas: 2 }, { replicas: 2 }] },
      refused: 'spec.rollout.steps[1]: must be larger than the step before it',
    },
    {
      name: 'a smaller share than before',
      rollout: { steps: [{ percent: 50 }, { percent: 25 }] },
      refused: 'spec.rollout.steps[1]: must be larger than the step before it',
    },
  ])('$name', ({ rollout, refused }) => {
    expect(violationsOf(rollout)).toEqual([refused]);
  });

  it.each<{ name: string; rollout: Init }>([
    {
      name: 'the defaults, with any strategy',
      rollout: { strategy: BLUE_GREEN, maxSurge: 1, pauseDuration: durationFromMs(0) },
    },
    {
      name: 'a canary',
      rollout: {
        steps: [
          { replicas: 1, promotion: MANUAL },
          { percent: 25, wait: durationFromMs(60_000) },
        ],
      },
    },
    {
      name: 'blue/green by hand',
      rollout: { strategy: BLUE_GREEN, promotion: MANUAL, pauseDuration: durationFromMs(1) },
    },
    { name: 'recreate with a floor for drains', rollout: { strategy: RECREATE, minAvailable: 1 } },
  ])('accepts $name', ({ rollout }) => {
    expect(violationsOf(rollout)).toEqual([]);
  });
});
