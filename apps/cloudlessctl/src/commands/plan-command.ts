import type { MessageInitShape } from '@bufbuild/protobuf';
import { ExecutePlanResponseSchema, PlanSchema, type PlannedChangeSchema } from '@cloudless/api';
import type { ExecutePlanResponse, Plan } from '@cloudless/api';
import { Code, ConnectError } from '@connectrpc/connect';
import type { Command } from 'commander';
import { GLOBAL_NAMES } from '../command-tree.js';
import type { Invocation } from '../command-tree.js';
import { usageFailure } from '../failure.js';
import { labelOf } from '../names.js';
import { formatTime } from '../output/human.js';
import { messageJson } from '../session.js';
import type { Session } from '../session.js';
import { planText } from '../views/plan-view.js';
import { waitUntilDrained } from '../wait/wait-node.js';
import { waitUntilSettled } from '../wait/wait-workload.js';
import { flagOption, textOption } from './options.js';

/** A change of a plan, as CreatePlan accepts it. */
export type ChangeInit = MessageInitShape<typeof PlannedChangeSchema>;

/** Adds `--plan` and `--plan-id`. */
export function addPlanOptions(command: Command): Command {
  return command
    .option('--plan', 'only show the change, and store it as a plan for an hour')
    .option('--plan-id <id>', 'execute a stored plan exactly as it was shown');
}

/**
 * Handles `--plan` and `--plan-id`.
 * @param changes - Called with `--plan`: the changes that the command would make.
 * @returns True when the command is done; false when neither option was given.
 */
export async function throughPlan(
  invocation: Invocation,
  changes: () => readonly ChangeInit[] | Promise<readonly ChangeInit[]>,
): Promise<boolean> {
  const { session } = invocation;
  const planId = textOption(invocation, 'planId');
  if (planId !== undefined) {
    await executePlan(invocation, planId);
    return true;
  }
  if (!flagOption(invocation, 'plan')) return false;
  if (flagOption(invocation, 'wait'))
    throw usageFailure('--plan changes nothing to wait for; use --wait with --plan-id');
  if (session.settings.requestId !== '')
    throw usageFailure('--plan changes nothing; use --request-id with --plan-id');
  await printPlan(session, await createPlan(session, [...(await changes())]));
  return true;
}

/**
 * Creates a plan.
 * @throws {@link ConnectError} of the coordinator; its message names the workload or node of a
 *   refused change instead of the index of the change.
 */
async function createPlan(session: Session, changes: ChangeInit[]): Promise<Plan> {
  try {
    return await session.client.createPlan({ changes }, session.callOptions());
  } catch (reason) {
    if (!(reason instanceof ConnectError) || reason.code !== Code.InvalidArgument) throw reason;
    const named = reason.rawMessage.replaceAll(
      /changes\[(\d+)\]\.\w+\.?/g,
      (place, index) => nameOf(changes[Number(index)]) ?? place,
    );
    throw new ConnectError(named, reason.code);
  }
}

function nameOf(planned: ChangeInit | undefined): string | undefined {
  const { case: kind, value } = planned?.change ?? {};
  if (kind === undefined || value === undefined) return undefined;
  if (kind === 'drain') return `node ${value.nodeId ?? ''}: `;
  return `${labelOf({ namespace: value.namespace ?? '', name: value.name ?? '' })}: `;
}

/** The options that may be combined with `--plan-id`. */
const BESIDE_PLAN_ID: readonly string[] = [...GLOBAL_NAMES, 'planId', 'wait'];

async function executePlan(invocation: Invocation, id: string): Promise<void> {
  const { session, operands, options } = invocation;
  const others = Object.keys(options).filter((name) => !BESIDE_PLAN_ID.includes(name));
  if (operands.length > 0 || others.length > 0) {
    throw usageFailure(
      '--plan-id executes the stored plan: of the operands and flags of this command, only --wait can be added',
    );
  }
  if (!/^[0-9a-f]{16}$/.test(id))
    throw usageFailure(`${JSON.stringify(id)} is not a plan id: expected 16 hex digits`);
  const done = await session.client.executePlan(
    { id, requestId: session.requestId() },
    session.callOptions(),
  );
  await tellDone(session, done);
  const final = flagOption(invocation, 'wait') ? await waitForAll(session, done) : done;
  if (session.structured) await session.printValue(messageJson(ExecutePlanResponseSchema, final));
}

async function tellDone(
  session: Session,
  { workloads, nodes }: ExecutePlanResponse,
): Promise<void> {
  for (const workload of workloads)
    await session.tell(
      `${labelOf(workload)}: ${workload.generation === 1n ? 'created' : 'updated'}`,
    );
  for (const { id } of nodes) await session.tell(`node ${id}: draining`);
  if (workloads.length + nodes.length === 0)
    await session.tell('nothing to change, the workloads are as planned');
}

async function waitForAll(
  session: Session,
  { $typeName, workloads, nodes }: ExecutePlanResponse,
): Promise<ExecutePlanResponse> {
  const settled = [];
  for (const workload of workloads) settled.push(await waitUntilSettled(session, workload));
  const nodeIds = nodes.map(({ id }) => id);
  const drained = nodeIds.length === 0 ? [] : await waitUntilDrained(session, nodeIds, undefined);
  return { $typeName, workloads: settled, nodes: [...drained] };
}

async function printPlan(session: Session, plan: Plan): Promise<void> {
  if (session.structured) return session.printValue(messageJson(PlanSchema, plan));
  for (const workload of plan.workloads)
    await session.print(planText(labelOf(workload), workload, session.style));
  for (const { change } of plan.changes) {
    const idle = change.case === 'drain' && plan.workloads.length === 0;
    if (idle) await session.print(`node ${change.value.nodeId}: no replicas to move\n`);
  }
  const until = formatTime(plan.expiresAt);
  await session.print(
    `plan ${plan.id}, kept until ${until}: cloudlessctl apply --plan-id ${plan.id}\n`,
  );
}
