import type { Command } from 'commander';
import { PlanSchema, PlanSummarySchema } from '@cloudless/api';
import type { PlanSummary } from '@cloudless/api';
import { WAIT_CAPACITY_TEXT } from '../../wait/refusal-check.js';
import type { CommandTree, Invocation } from '../../command-tree.js';
import { toMessageJson } from '../../call/cli-session.js';
import type { CliSession } from '../../call/cli-session.js';
import { createUsageFailure } from '../../call/failure.js';
import { formatPlanTable, formatStoredPlan } from '../../views/stored-plan-view.js';
import { executeStoredPlan, isPlanId } from './execute-plan.js';
import { addOverrideOption } from './override-option.js';

/** Plans of one page. A summary is small. */
const PAGE_SIZE = 500;

/** Adds `plan list`, `plan show` and `plan execute`. */
export function addPlanCommands(tree: CommandTree, group: Command): void {
  tree
    .addCommand(group, 'list', 'list the stored plans, newest first', listPlans)
    .option('-A, --all-namespaces', 'as always: a plan may concern several namespaces');
  tree.addCommand(group, 'show <plan>', 'show a stored plan', showPlan);
  const execute = tree.addCommand(
    group,
    'execute <plan>',
    'execute a stored plan exactly as it was shown',
    (invocation) => executeStoredPlan(invocation, requirePlanId(invocation)),
  );
  addOverrideOption(execute)
    .option('--wait', 'wait until the workloads have settled and the nodes are drained')
    .option('--wait-capacity', WAIT_CAPACITY_TEXT);
}

async function listPlans({ session }: Invocation): Promise<void> {
  const plans = await listAllPlans(session);
  if (session.isStructured) {
    await session.printValue({
      plans: plans.map((plan) => toMessageJson(PlanSummarySchema, plan)),
    });
  } else if (plans.length === 0) {
    await session.printNotice('no plans: --plan stores the change of a command for an hour');
  } else {
    await session.print(formatPlanTable(plans, session.nowMs, session.style));
  }
}

async function listAllPlans(session: CliSession): Promise<readonly PlanSummary[]> {
  const plans: PlanSummary[] = [];
  let pageToken = '';
  do {
    const page = await session.client.listPlans(
      { pageSize: PAGE_SIZE, pageToken },
      session.getCallOptions(),
    );
    plans.push(...page.plans);
    pageToken = page.nextPageToken;
  } while (pageToken !== '');
  return plans;
}

async function showPlan(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const plan = await session.client.getPlan(
    { id: requirePlanId(invocation) },
    session.getCallOptions(),
  );
  if (session.isStructured) await session.printValue(toMessageJson(PlanSchema, plan));
  else await session.print(formatStoredPlan(plan, session.nowMs, session.style));
}

/** @throws a usage failure when the operand is no plan id. */
function requirePlanId({ operands: [id = ''] }: Invocation): string {
  if (isPlanId(id)) return id;
  throw createUsageFailure(
    `${JSON.stringify(id)} is not a plan id: expected 16 hex digits; plan list shows the ids`,
  );
}
