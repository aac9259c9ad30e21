import type { JsonObject, JsonValue } from '@bufbuild/protobuf';
import {
  Rollout_OnFailureSchema,
  Rollout_PromotionSchema,
  Rollout_StrategySchema,
} from '@cloudless/api';
import { createUsageFailure } from '../call/failure.js';
import { parseDuration } from '../quantity.js';
import { toDurationJson } from '../manifest/read-scalar.js';
import {
  createDurationParser,
  listEnumNames,
  listEnumWords,
  parseWholeNumber,
  createWholeNumberParser,
  createEnumParser,
} from './flag-values.js';
import type { SpecFlag } from './flag-values.js';

/** Flags of the rollout settings. */
export const ROLLOUT_FLAGS: readonly SpecFlag[] = [
  {
    flag: '--strategy',
    value: 'strategy',
    description: 'rollout strategy',
    path: 'rollout.strategy',
    values: listEnumWords(Rollout_StrategySchema),
    parse: createEnumParser('--strategy', listEnumNames(Rollout_StrategySchema)),
  },
  ...createCountFlags({
    '--max-surge': [
      'max_surge',
      'replicas above the desired number that may exist during a rollout',
    ],
    '--max-unavailable': ['max_unavailable', 'replicas that may be unavailable during a rollout'],
    '--min-available': ['min_available', 'replicas that stay available during rollouts and drains'],
  }),
  {
    flag: '--max-failed-new',
    value: 'number[%]',
    description:
      'failures of new replicas after which the rollout fails: a number, or a percentage of the replicas',
    path: 'rollout.max_failed_new',
    parse: (texts) => parseWholeNumber('--max-failed-new', (texts.at(-1) ?? '').replace(/%$/, '')),
    alternative: {
      path: 'rollout.max_failed_new_percent',
      matches: (texts) => texts.at(-1)?.endsWith('%') === true,
    },
  },
  ...createDurationFlags({
    '--min-ready': [
      'min_ready_duration',
      'time that a replica must be ready before it counts as available',
    ],
    '--progress-deadline': [
      'progress_deadline',
      'time without progress after which the rollout fails',
    ],
    '--pause-duration': [
      'pause_duration',
      'BlueGreen: time to keep the previous version after the switch',
    ],
  }),
  {
    flag: '--on-failure',
    value: 'action',
    description: 'action when a rollout fails',
    path: 'rollout.on_failure',
    values: listEnumWords(Rollout_OnFailureSchema),
    parse: createEnumParser('--on-failure', listEnumNames(Rollout_OnFailureSchema)),
  },
  {
    flag: '--promotion',
    value: 'promotion',
    description: 'BlueGreen: switch to the new version',
    path: 'rollout.promotion',
    values: listEnumWords(Rollout_PromotionSchema),
    parse: createEnumParser('--promotion', listEnumNames(Rollout_PromotionSchema)),
  },
  {
    flag: '--step',
    value: 'step',
    path: 'rollout.steps',
    repeatable: true,
    parse: parseSteps,
    description:
      'canary step, such as 1 or 25%,wait=5m or weight=10%,wait=5m or 50%,weight=10%,manual or 10%,wait=5m,gate=EXPRESSION; none removes all steps',
  },
];

/** Field below `rollout` and description of each flag. */
type FlagFields = Readonly<Record<string, readonly [field: string, description: string]>>;

function createCountFlags(flags: FlagFields): readonly SpecFlag[] {
  return Object.entries(flags).map(([flag, [field, description]]) => ({
    flag,
    value: 'number',
    description,
    path: `rollout.${field}`,
    parse: createWholeNumberParser(flag),
  }));
}

function createDurationFlags(flags: FlagFields): readonly SpecFlag[] {
  return Object.entries(flags).map(([flag, [field, description]]) => ({
    flag,
    value: 'duration',
    description,
    path: `rollout.${field}`,
    parse: createDurationParser(flag),
  }));
}

function parseSteps(texts: readonly string[]): JsonValue {
  if (texts.length === 1 && texts[0] === 'none') return [];
  return texts.map(parseStep);
}

/**
 * Parses `NUMBER[%][,weight=NUMBER%][,wait=DURATION|,manual][,gate=EXPRESSION]`. With a weight, the
 * number of replicas may be left out.
 */
function parseStep(text: string): JsonObject {
  // The gate is last, as it may contain commas.
  const [, before = text, gate] = /^(.*?),\s*gate=(.*)$/s.exec(text) ?? [];
  if (gate?.trim() === '') throw createFailure(text);
  const ends = before.split(',').map((part) => part.trim());
  const [, number, percent] = /^(\d+)(%?)$/.exec(ends[0] ?? '') ?? [];
  if (number !== undefined) ends.shift();
  const [, weight] = /^weight=(\d+)%$/.exec(ends[0] ?? '') ?? [];
  if (weight !== undefined) ends.shift();
  const [stepEnd, ...more] = ends;
  if ((number === undefined && weight === undefined) || more.length > 0) throw createFailure(text);
  return {
    ...(number === undefined ? {} : parseSize(number, percent === '%')),
    ...(weight === undefined ? {} : { weightPercent: parseWholeNumber('--step', weight) }),
    ...(stepEnd === undefined ? {} : parseStepEnd(text, stepEnd)),
    ...(gate === undefined ? {} : { gate: gate.trim() }),
  };
}

function parseSize(number: string, isPercent: boolean): JsonObject {
  const amount = parseWholeNumber('--step', number);
  return isPercent ? { percent: amount } : { replicas: amount };
}

/** Parses the end of a step: `wait=DURATION` or `manual`. */
function parseStepEnd(text: string, stepEnd: string): JsonObject {
  if (stepEnd.toLowerCase() === 'manual') return { promotion: 'MANUAL' };
  if (!stepEnd.startsWith('wait=')) throw createFailure(text);
  const wait = parseDuration(stepEnd.slice('wait='.length));
  if ('problem' in wait) throw createUsageFailure(`--step: ${wait.problem}`);
  return { wait: toDurationJson(wait.value) };
}

function createFailure(text: string): Error {
  return createUsageFailure(
    `--step: expected a number of replicas or a percentage, weight=PERCENT, or both, then wait=DURATION or manual, then gate=EXPRESSION, for example 1,wait=5m or weight=10%,wait=5m or 25%,weight=10%,manual or 10%,wait=5m,gate=p99_ms < 200, got ${JSON.stringify(text)}`,
  );
}
