import { PlanSchema, PlanSummarySchema } from '@cloudless/api';
import type { PlanSummary } from '@cloudless/api';
import { toMessageJson } from '../../call/cli-session.js';
import { createUsageFailure } from '../../call/failure.js';
import type { Invocation } from '../../command-tree.js';
import { formatPlanTable, formatStoredPlan } from '../../views/stored-plan-view.js';
import { printObjects, type ObjectKind } from '../general/list-objects.js';
import { listAllPages } from '../page.js';
import { isPlanId } from './execute-plan.js';

/** Names, fields and columns of stored plans in lists. */
const PLAN_KIND: ObjectKind<PlanSummary> = {
  plural: 'plans',
  fields: PlanSummarySchema.fields.map(({ jsonName }) => jsonName),
  toJson: (plan) => toMessageJson(PlanSummarySchema, plan),
  formatTable: (plans, { nowMs, style }) => formatPlanTable(plans, nowMs, style),
};

/** Lists the stored plans, newest first. */
export async function listPlans(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const plans = await listAllPages(
    (page) => session.client.listPlans(page, session.getCallOptions()),
    (page) => page.plans,
  );
  const hint = 'no plans: --plan stores the change of a command for an hour';
  await printObjects(invocation, PLAN_KIND, plans, hint);
}

/** Shows the stored plan that the first operand names. */
export async function showPlan(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const plan = await session.client.getPlan(
    { id: requirePlanId(invocation) },
    session.getCallOptions(),
  );
  if (session.isStructured) await session.printValue(toMessageJson(PlanSchema, plan));
  else await session.print(formatStoredPlan(plan, session.nowMs, session.style));
}

/**
 * Returns the plan id that is the first operand.
 * @throws {@link CliFailure} with exit code 2 when the operand is no plan id.
 */
export function requirePlanId({ operands: [id = ''] }: Invocation): string {
  if (isPlanId(id)) return id;
  throw createUsageFailure(
    `${JSON.stringify(id)} is not a plan id: expected 16 hex digits; plan list shows the ids`,
  );
}
