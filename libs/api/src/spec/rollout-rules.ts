import { durationMs } from '@bufbuild/protobuf/wkt';
import type { Violation } from '@cloudless/base';
import {
  Rollout_Promotion as Promotion,
  Rollout_Strategy as Strategy,
  type Rollout,
  type Rollout_Step,
  type WorkloadSpec,
} from '../gen.js';
import { DEFAULTS } from './defaults.js';

/**
 * Validates combinations of fields of `spec.rollout`: the fields that each strategy supports, and
 * the order of the canary steps. The paths of the violations start with `spec`.
 */
export function* validateRollout({ rollout }: WorkloadSpec): Generator<Violation> {
  if (rollout === undefined) return;
  yield* validateStrategy(rollout);
  yield* validateSteps(rollout);
  if (rollout.maxFailedNew !== undefined && rollout.maxFailedNewPercent !== undefined)
    yield {
      field: 'spec.rollout.max_failed_new_percent',
      message: 'cannot be combined with max_failed_new; remove one of them',
    };
}

function* validateStrategy(rollout: Rollout): Generator<Violation> {
  const { strategy, promotion, pauseDuration, maxSurge } = rollout;
  if (strategy !== Strategy.BLUE_GREEN) {
    if (promotion === Promotion.MANUAL) {
      const field = 'spec.rollout.promotion';
      yield {
        field,
        message:
          'only BLUE_GREEN has a promotion of the switch; for a rolling update set the promotion of spec.rollout.steps',
      };
    }
    if (pauseDuration !== undefined && durationMs(pauseDuration) !== DEFAULTS.pauseMs)
      yield {
        field: 'spec.rollout.pause_duration',
        message: 'only BLUE_GREEN keeps the old version; set spec.rollout.strategy',
      };
  }
  if (
    strategy !== Strategy.ROLLING_UPDATE &&
    (maxSurge ?? DEFAULTS.maxSurge) !== DEFAULTS.maxSurge
  ) {
    const behaviour =
      strategy === Strategy.BLUE_GREEN
        ? 'starts all new replicas at once'
        : 'stops all replicas first';
    yield {
      field: 'spec.rollout.max_surge',
      message: `only ROLLING_UPDATE supports a surge; ${Strategy[strategy]} ${behaviour}`,
    };
  }
}

function* validateSteps({ strategy, steps }: Rollout): Generator<Violation> {
  if (steps.length > 0 && strategy !== Strategy.ROLLING_UPDATE)
    yield {
      field: 'spec.rollout.steps',
      message: `only ROLLING_UPDATE has canary steps, not ${Strategy[strategy]}`,
    };
  for (const [index, step] of steps.entries()) {
    const { replicas, percent, wait, promotion, weightPercent } = step;
    const field = `spec.rollout.steps[${index}]`;
    const hasSize = replicas > 0 || percent > 0;
    if ((replicas > 0 && percent > 0) || (!hasSize && weightPercent === undefined))
      yield { field, message: 'needs either replicas or percent, above 0, or only weight_percent' };
    const hasWait = wait !== undefined && durationMs(wait) > 0;
    if (promotion === Promotion.MANUAL && hasWait)
      yield {
        field: `${field}.wait`,
        message: 'a MANUAL step waits for a promotion, not for a time; remove one of them',
      };
    const before = steps[index - 1];
    if (before === undefined) continue;
    const [sizePercent, sizePercentBefore] = [sizePercentOf(step), sizePercentOf(before)];
    // A number of replicas and a percentage cannot be compared without the desired number.
    const isNotLarger =
      sizePercent === undefined || sizePercentBefore === undefined
        ? replicas > 0 && replicas <= before.replicas
        : sizePercent <= sizePercentBefore;
    // Without a size of its own, a step has at least the replicas of the step before.
    const hasMoreWeight =
      before.weightPercent !== undefined &&
      weightPercent !== undefined &&
      weightPercent > before.weightPercent &&
      (!hasSize || (replicas === before.replicas && sizePercent === sizePercentBefore));
    if (isNotLarger && !hasMoreWeight)
      yield {
        field,
        message: 'must be larger than the step before it, or as large with a larger weight_percent',
      };
    if (weightPercent !== undefined && weightPercent < (before.weightPercent ?? 0))
      yield {
        field: `${field}.weight_percent`,
        message: 'must not be smaller than that of the step before it',
      };
  }
}

/** The percentage of the desired replicas at a step; undefined for a step in replicas. */
function sizePercentOf({ replicas, percent, weightPercent }: Rollout_Step): number | undefined {
  if (replicas > 0) return undefined;
  return percent > 0 ? percent : weightPercent;
}
