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
 * Tells whether this version supports a taint. Unknown effects and taints without a key are
 * ignored.
 */
export function isSupportedTaint({ key, effect }: ApiTaint): boolean {
  return key !== '' && Object.hasOwn(effects, effect);
}

export function toTaint(taint: ApiTaint): Taint {
  return { key: taint.key, value: taint.value, effect: effects[taint.effect] };
}

export function toToleration(toleration: ApiToleration): Toleration {
  return {
    key: toleration.key,
    operator: toleration.operator === TolerationOperator.EXISTS ? 'Exists' : 'Equal',
    value: toleration.value,
    ...(toleration.effect === undefined ? {} : { effect: effects[toleration.effect] }),
  };
}
