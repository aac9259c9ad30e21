import type { Command } from 'commander';
import { PlanSchema } from '@cloudless/api';
import type { Plan } from '@cloudless/api';
import { GLOBAL_OPTION_NAMES } from '../../command-tree.js';
import type { Invocation } from '../../command-tree.js';
import { createUsageFailure } from '../../call/failure.js';
import { formatStyledTime } from '../../output/style.js';
import { toMessageJson } from '../../call/cli-session.js';
import type { CliSession } from '../../call/cli-session.js';
import { formatPlannedChanges } from '../../views/stored-plan-view.js';
import { formatObjectName } from '../../object-name.js';
import { formatConfigChanges } from '../config/plan-configs.js';
import { hasFlag, getTextOption } from '../options.js';
import { formatRouteName } from '../route/find-route.js';
import { formatServiceName } from '../service/find-service.js';
import { confirmChanges, requireConfirmedPreview, type Confirmation } from './confirm-change.js';
import { executeStoredPlan, isPlanId } from './execute-plan.js';
import {
  createPlan,
  groupChanges,
  predictBeforeConfigs,
  predictChanges,
  type ChangeInit,
} from './predict-changes.js';
import { NO_OBJECT_CHANGES, printPrediction, type ObjectChanges } from './show-changes.js';

/** Adds the options of every command that makes changes: how to preview and to confirm them. */
export function addChangeOptions(command: Command): Command {
  return command
    .option('--dry-run', 'only show the change; nothing is changed or stored')
    .option('--plan', 'only show the change, and store it as a plan for an hour')
    .option('--accept-warnings', 'make the change even if its prediction has warnings')
    .option('-y, --yes', 'answer the questions of this command with yes');
}

/** Adds the options of {@link addChangeOptions} and `--plan-id`. */
export function addPlanOptions(command: Command): Command {
  return addChangeOptions(command).option(
    '--plan-id <plan>',
    'execute a stored plan exactly as it was shown',
  );
}

/** Returns the changes that a command would make. */
export type CreateChanges = () => readonly ChangeInit[] | Promise<readonly ChangeInit[]>;

/**
 * Handles `--plan-id`, `--dry-run` and `--plan`, and otherwise predicts the changes and confirms
 * their warnings, see {@link confirmChanges}.
 * @returns True when the command is done; false when it may make the changes.
 */
export async function handleChangeOptions(
  invocation: Invocation,
  createChanges: CreateChanges,
  confirmation: Confirmation = {},
  readOthers?: ReadOthers,
): Promise<boolean> {
  const { dryRunUsesExitCode = false, isForced = false } = confirmation;
  const checkPreview = (plans: readonly Plan[]): void =>
    dryRunUsesExitCode ? requireConfirmedPreview(invocation, plans, isForced) : undefined;
  if (await handlePreviewOptions(invocation, createChanges, readOthers, checkPreview)) return true;
  await confirmChanges(invocation, await createChanges(), confirmation);
  return false;
}

/** Returns the changes that a command would make of other objects than workloads. */
export type ReadOthers = () => Promise<ObjectChanges>;

/**
 * Handles `--plan-id`, `--dry-run` and `--plan`.
 * @param checkPreview - Called with the predictions of `--dry-run` after they were shown; throws the
 *   failure with which the command ends. Default: exit code 0.
 * @returns True when the command is done.
 */
export async function handlePreviewOptions(
  invocation: Invocation,
  createChanges: CreateChanges,
  readOthers: ReadOthers = async () => NO_OBJECT_CHANGES,
  checkPreview: (plans: readonly Plan[]) => void = () => undefined,
): Promise<boolean> {
  const { session } = invocation;
  const planId = getTextOption(invocation, 'planId');
  if (planId !== undefined) {
    await executePlan(invocation, planId);
    return true;
  }
  const [isPlan, isDryRun] = [hasFlag(invocation, 'plan'), hasFlag(invocation, 'dryRun')];
  if (!isPlan && !isDryRun) return false;
  if (isPlan && isDryRun)
    throw createUsageFailure(
      '--dry-run and --plan exclude each other: --dry-run only prints the plan, --plan also stores it',
    );
  const flag = isPlan ? '--plan' : '--dry-run';
  if (hasFlag(invocation, 'wait'))
    throw createUsageFailure(`${flag} changes nothing to wait for; remove --wait`);
  if (session.settings.requestId !== '')
    throw createUsageFailure(
      `${flag} changes nothing; ${isPlan ? 'use --request-id with --plan-id' : 'remove --request-id'}`,
    );
  const changes = await createChanges();
  const others = await readOthers();
  const [other] = [
    ...others.services.map(formatServiceName),
    ...others.routes.map(formatRouteName),
    ...others.configs.map((config) => formatObjectName('config', config)),
  ];
  if (isPlan && other !== undefined)
    throw createUsageFailure(
      `a stored plan contains workloads only, and the manifests contain ${other}; use --dry-run, or keep the workloads in files of their own`,
    );
  if (isPlan) await printPlan(session, await storePlan(session, changes));
  else checkPreview(await printPreview(session, changes, others));
  return true;
}

/** Prints the prediction of changes, configs first, as they are applied, and returns the plans. */
async function printPreview(
  session: CliSession,
  changes: readonly ChangeInit[],
  others: ObjectChanges,
): Promise<readonly Plan[]> {
  const { configs } = others;
  if (configs.length === 0) {
    const predicted = await predictChanges(session, changes);
    await printPrediction(session, predicted, others);
    return predicted;
  }
  const { plans, waiting } = await predictBeforeConfigs(session, changes);
  if (!session.isStructured) await session.print(formatConfigChanges(configs, session.style));
  await printPrediction(session, plans, others);
  for (const subject of waiting)
    await session.printNotice(`${subject}: not predicted, because a config does not exist yet`);
  return plans;
}

async function storePlan(session: CliSession, changes: readonly ChangeInit[]): Promise<Plan> {
  const [first = [], ...others] = groupChanges(changes);
  if (others.length > 0)
    throw createUsageFailure(
      `one plan stores at most ${first.length} changes, and this command makes ${changes.length}; make several plans, or use --dry-run`,
    );
  // A stored plan of a stale manifest could be executed later.
  if (first.some(({ manifestGeneration }) => manifestGeneration !== undefined))
    await predictChanges(session, first);
  return createPlan(session, first, /* validateOnly */ false);
}

/**
 * The options that may be combined with `--plan-id`. Every other option would change the meaning of
 * a plan that the user has already seen.
 */
const OPTIONS_WITH_PLAN_ID: readonly string[] = [
  ...GLOBAL_OPTION_NAMES,
  'planId',
  'overridePolicies',
  'wait',
  'waitCapacity',
  'yes',
];

async function executePlan(invocation: Invocation, id: string): Promise<void> {
  const { operands, options } = invocation;
  const otherOptions = Object.keys(options).filter((name) => !OPTIONS_WITH_PLAN_ID.includes(name));
  if (operands.length > 0 || otherOptions.length > 0) {
    throw createUsageFailure(
      '--plan-id executes the stored plan: remove the operands and all flags of this command except --wait and --override-policies',
    );
  }
  if (!isPlanId(id))
    throw createUsageFailure(`${JSON.stringify(id)} is not a plan id: expected 16 hex digits`);
  await executeStoredPlan(invocation, id);
}

async function printPlan(session: CliSession, plan: Plan): Promise<void> {
  if (session.isStructured) return session.printValue(toMessageJson(PlanSchema, plan));
  await session.print(formatPlannedChanges(plan, session.style));
  const until = formatStyledTime(plan.expiresAt, session.style);
  await session.print(
    `plan ${plan.id}, kept until ${until}: cloudlessctl plan execute ${plan.id}\n`,
  );
}
