import type { JsonObject, JsonValue } from '@bufbuild/protobuf';
import {
  Rollout_OnFailureSchema,
  Rollout_PromotionSchema,
  Rollout_StrategySchema,
} from '@cloudless/api';
import { usageFailure } from '../failure.js';
import { parseDuration } from '../quantity.js';
import { durationJson } from '../manifest/read-scalar.js';
import { duration, names, parseWholeNumber, wholeNumber, word } from './flag-values.js';
import type { SpecFlag } from './flag-values.js';

/** How a new version replaces the old one. */
export const ROLLOUT_FLAGS: readonly SpecFlag[] = [
  {
    ...{
      flag: '--strategy',
      value: 'strategy',
      description: 'ROLLING_UPDATE, RECREATE or BLUE_GREEN',
      path: 'rollout.strategy',
    },
    parse: word('--strategy', names(Rollout_StrategySchema)),
  },
  ...counts({
    '--max-surge': ['max_surge', 'replicas beyond the wanted number'],
    '--max-unavailable': ['max_unavailable', 'replicas stopped at a time'],
    '--min-available': ['min_available', 'ready replicas kept at every instant'],
    '--max-failed-new': [
      'max_failed_new',
      'failures of new replicas after which a rollout has failed',
    ],
  }),
  ...durations({
    '--min-ready': ['min_ready_duration', 'how long ready before it counts'],
    '--progress-deadline': [
      'progress_deadline',
      'a rollout without progress for so long has failed',
    ],
    '--pause-duration': [
      'pause_duration',
      'BLUE_GREEN: how long the former version is kept after the switch',
    ],
  }),
  {
    ...{
      flag: '--on-failure',
      value: 'action',
      description: 'PAUSE or ROLLBACK, when a rollout fails',
      path: 'rollout.on_failure',
    },
    parse: word('--on-failure', names(Rollout_OnFailureSchema)),
  },
  {
    ...{
      flag: '--promotion',
      value: 'promotion',
      description: 'BLUE_GREEN: AUTO or MANUAL switch',
      path: 'rollout.promotion',
    },
    parse: word('--promotion', names(Rollout_PromotionSchema)),
  },
  {
    ...{ flag: '--step', value: 'step', path: 'rollout.steps', repeatable: true, parse: steps },
    description: 'canary step: 1, 25%,wait=5m or 50%,manual; none: no steps',
  },
];

type Named = Readonly<Record<string, readonly [field: string, description: string]>>;

function counts(flags: Named): readonly SpecFlag[] {
  return Object.entries(flags).map(([flag, [field, description]]) => ({
    ...{ flag, value: 'number', description, path: `rollout.${field}`, parse: wholeNumber(flag) },
  }));
}

function durations(flags: Named): readonly SpecFlag[] {
  return Object.entries(flags).map(([flag, [field, description]]) => ({
    ...{ flag, value: 'duration', description, path: `rollout.${field}`, parse: duration(flag) },
  }));
}

function steps(texts: readonly string[]): JsonValue {
  if (texts.length === 1 && texts[0] === 'none') return [];
  return texts.map(step);
}

/** Reads `NUMBER[%][,wait=DURATION|,manual]`. */
function step(given: string): JsonObject {
  const [size = '', then, ...more] = given.split(',').map((part) => part.trim());
  const [, number, percent] = /^(\d+)(%?)$/.exec(size) ?? [];
  if (number === undefined || more.length > 0) throw malformed(given);
  const many = parseWholeNumber('--step', number);
  return {
    ...(percent === '%' ? { percent: many } : { replicas: many }),
    ...(then === undefined ? {} : whatThen(given, then)),
  };
}

function whatThen(given: string, then: string): JsonObject {
  if (then.toLowerCase() === 'manual') return { promotion: 'MANUAL' };
  if (!then.startsWith('wait=')) throw malformed(given);
  const wait = parseDuration(then.slice('wait='.length));
  if ('problem' in wait) throw usageFailure(`--step: ${wait.problem}`);
  return { wait: durationJson(wait.value) };
}

function malformed(given: string): Error {
  return usageFailure(
    `--step: expected a number of replicas or a percentage, then wait=DURATION or manual, as in 1,wait=5m or 25%,manual, got ${JSON.stringify(given)}`,
  );
}
