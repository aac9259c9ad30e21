import {
  Taint_Effect as Effect,
  Toleration_Operator as TolerationOperator,
  type Taint as ApiTaint,
  type Toleration as ApiToleration,
} from '@cloudless/api';
import type { Taint, TaintEffect, Toleration } from '@cloudless/scheduler';

const effects: Record<Effect, TaintEffect> = {
  [Effect.NO_SCHEDULE]: 'NoSchedule',
  [Effect.PREFER_NO_SCHEDULE]: 'PreferNoSchedule',
  [Effect.NO_EXECUTE]: 'NoExecute',
};

/**
 * Returns true for a taint with a key and a known effect. Every other taint has to be ignored, for
 * example one with an effect of a newer version.
 */
export function isSupportedTaint({ key, effect }: ApiTaint): boolean {
  return key !== '' && Object.hasOwn(effects, effect);
}

/** Converts a supported taint, see {@link isSupportedTaint}. */
export function toTaint(taint: ApiTaint): Taint {
  return { key: taint.key, value: taint.value, effect: effects[taint.effect] };
}

/** Converts a toleration. The toleration period is lost. */
export function toToleration(toleration: ApiToleration): Toleration {
  return {
    key: toleration.key,
    operator: toleration.operator === TolerationOperator.EXISTS ? 'Exists' : 'Equal',
    value: toleration.value,
    ...(toleration.effect === undefined ? {} : { effect: effects[toleration.effect] }),
  };
}
