import type { MessageInitShape } from '@bufbuild/protobuf';
import { Code, ConnectError } from '@connectrpc/connect';
import type { Command } from 'commander';
import { PlanSchema, type PlannedChangeSchema } from '@cloudless/api';
import type { Plan } from '@cloudless/api';
import { GLOBAL_OPTION_NAMES } from '../../command-tree.js';
import type { Invocation } from '../../command-tree.js';
import { createUsageFailure } from '../../call/failure.js';
import { formatWorkloadName } from '../../names.js';
import { formatTime } from '../../output/human.js';
import { toMessageJson } from '../../call/cli-session.js';
import type { CliSession } from '../../call/cli-session.js';
import { formatPlannedChanges } from '../../views/stored-plan-view.js';
import { hasFlag, getTextOption } from '../options.js';
import { executeStoredPlan } from './execute-plan.js';

/** A change of a plan, as CreatePlan accepts it. */
export type ChangeInit = MessageInitShape<typeof PlannedChangeSchema>;

/** Adds `--plan` and `--plan-id` to a command whose changes {@link handlePlanOptions} can plan. */
export function addPlanOptions(command: Command): Command {
  return command
    .option('--plan', 'only show the change, and store it as a plan for an hour')
    .option('--plan-id <plan>', 'execute a stored plan exactly as it was shown');
}

/**
 * Handles `--plan` and `--plan-id`.
 * @param changes - Called with `--plan`: the changes that the command would make.
 * @returns True when the command is done; false when neither option was given.
 */
export async function handlePlanOptions(
  invocation: Invocation,
  changes: () => readonly ChangeInit[] | Promise<readonly ChangeInit[]>,
): Promise<boolean> {
  const { session } = invocation;
  const planId = getTextOption(invocation, 'planId');
  if (planId !== undefined) {
    await executePlan(invocation, planId);
    return true;
  }
  if (!hasFlag(invocation, 'plan')) return false;
  if (hasFlag(invocation, 'wait'))
    throw createUsageFailure('--plan changes nothing to wait for; use --wait with --plan-id');
  if (session.settings.requestId !== '')
    throw createUsageFailure('--plan changes nothing; use --request-id with --plan-id');
  await printPlan(session, await createPlan(session, [...(await changes())]));
  return true;
}

/**
 * Creates a plan.
 * @throws {@link ConnectError} with the code of the coordinator. The message of a refused change
 *   names its workload or node, instead of the index of the change in the request.
 */
async function createPlan(session: CliSession, changes: ChangeInit[]): Promise<Plan> {
  try {
    return await session.client.createPlan({ changes }, session.getCallOptions());
  } catch (reason) {
    if (!(reason instanceof ConnectError) || reason.code !== Code.InvalidArgument) throw reason;
    const message = reason.rawMessage.replaceAll(
      /changes\[(\d+)\]\.\w+\.?/g,
      (place, index) => describeChange(changes[Number(index)]) ?? place,
    );
    const renamed = new ConnectError(message, reason.code);
    renamed.details = reason.details;
    throw renamed;
  }
}

/** Returns the prefix `workload <name>: ` or `node <id>: ` of a message about a change. */
function describeChange(planned: ChangeInit | undefined): string | undefined {
  const { case: kind, value } = planned?.change ?? {};
  if (kind === undefined || value === undefined) return undefined;
  if ('nodeId' in value) return `node ${value.nodeId ?? ''}: `;
  if (!('name' in value)) return undefined;
  return `${formatWorkloadName({ namespace: value.namespace ?? '', name: value.name ?? '' })}: `;
}

/**
 * The options that may be combined with `--plan-id`. Every other option would change the meaning of
 * a plan that the user has already seen.
 */
const OPTIONS_WITH_PLAN_ID: readonly string[] = [
  ...GLOBAL_OPTION_NAMES,
  'planId',
  'wait',
  'waitCapacity',
];

async function executePlan(invocation: Invocation, id: string): Promise<void> {
  const { operands, options } = invocation;
  const otherOptions = Object.keys(options).filter((name) => !OPTIONS_WITH_PLAN_ID.includes(name));
  if (operands.length > 0 || otherOptions.length > 0) {
    throw createUsageFailure(
      '--plan-id executes the stored plan: remove the operands and all flags of this command except --wait',
    );
  }
  if (!/^[0-9a-f]{16}$/.test(id))
    throw createUsageFailure(`${JSON.stringify(id)} is not a plan id: expected 16 hex digits`);
  await executeStoredPlan(invocation, id);
}

async function printPlan(session: CliSession, plan: Plan): Promise<void> {
  if (session.isStructured) return session.printValue(toMessageJson(PlanSchema, plan));
  await session.print(formatPlannedChanges(plan, session.style));
  const until = formatTime(plan.expiresAt);
  await session.print(
    `plan ${plan.id}, kept until ${until}: cloudlessctl plan execute ${plan.id}\n`,
  );
}
