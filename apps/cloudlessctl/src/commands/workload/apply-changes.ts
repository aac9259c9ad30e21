import { Code, ConnectError } from '@connectrpc/connect';
import { WorkloadPlan_Action as Action } from '@cloudless/api';
import type { Plan, Workload, WorkloadPlan } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { isTransient } from '../../call/call-failure.js';
import type { CliSession } from '../../call/cli-session.js';
import { CliFailure, ExitCode } from '../../call/failure.js';
import { formatCount } from '../../output/human.js';
import { formatPlannedChanges } from '../../views/stored-plan-view.js';
import { waitUntilDeleted, waitUntilSettled } from '../../wait/wait-workload.js';
import { hasFlag } from '../options.js';
import { getWaitOptions } from '../wait-options.js';
import { confirmWarnings, requireSameWarnings } from '../plan/confirm-change.js';
import { printExecuted } from '../plan/execute-plan.js';
import {
  collectWarnings,
  createPlan,
  groupChanges,
  predictChanges,
  predictEach,
  type ChangeInit,
} from '../plan/predict-changes.js';
import { printWorkloads } from './list-workloads.js';

/**
 * Attempts of a plan that conflicts with concurrent changes. Applies only when the user was not
 * asked about the plan.
 */
const MAX_ATTEMPTS = 4;

/** A stored plan of a group of changes, as it was shown. */
interface ShownPlan {
  readonly changes: readonly ChangeInit[];
  plan: Plan;
}

/**
 * Shows the plan of all changes, asks when it has warnings or deletes workloads, and executes it.
 * More changes than one plan may contain are executed in groups, one after the other.
 * @throws {@link CliFailure} with exit code 9 when the plan is not confirmed, with exit code 4 when
 *   its outcome has changed since it was confirmed.
 */
export async function applyChanges(
  invocation: Invocation,
  changes: readonly ChangeInit[],
): Promise<void> {
  const { session } = invocation;
  const predicted = await requirePredictions(session, changes);
  const isChange = predicted.some(({ workloads }) => workloads.some(hasEffect));
  const executed = isChange ? await confirmAndExecute(invocation, changes) : [];
  if (!isChange) await showPlans(session, predicted);
  const workloads: Workload[] = [];
  for (const { namespace, name } of predicted.flatMap((plan) => plan.workloads)) {
    workloads.push(
      executed.find((workload) => workload.namespace === namespace && workload.name === name) ??
        (await session.client.getWorkload({ namespace, name }, session.getCallOptions())),
    );
  }
  const final: Workload[] = [];
  for (const workload of workloads)
    final.push(
      hasFlag(invocation, 'wait') ? await waitUntilApplied(invocation, workload) : workload,
    );
  if (session.isStructured) await printWorkloads(session, final);
}

const hasEffect = ({ action }: WorkloadPlan): boolean => action !== Action.NOTHING;

/**
 * Predicts all changes.
 * @throws {@link ConnectError} that lists the refusals of all changes, with the code of the first. A
 *   connection error is thrown unchanged.
 */
async function requirePredictions(
  session: CliSession,
  changes: readonly ChangeInit[],
): Promise<readonly Plan[]> {
  try {
    return await predictChanges(session, changes);
  } catch (reason) {
    if (!(reason instanceof ConnectError) || isTransient(reason)) throw reason;
    const { refusals } = await predictEach(session, changes);
    const [first] = refusals;
    if (first === undefined) throw reason;
    // A message about an invalid field already names the workload.
    const lines = refusals.map(({ subject, reason: { rawMessage } }) =>
      rawMessage.startsWith(subject) ? rawMessage : `${subject}: ${rawMessage}`,
    );
    const refusal = new ConnectError(
      ['nothing was applied:', ...lines].join('\n'),
      first.reason.code,
    );
    refusal.details = first.reason.details;
    throw refusal;
  }
}

/** Shows the plans, confirms and executes them, and returns the changed workloads. */
async function confirmAndExecute(
  invocation: Invocation,
  changes: readonly ChangeInit[],
): Promise<readonly Workload[]> {
  const { session } = invocation;
  const shown: ShownPlan[] = [];
  for (const group of groupChanges(changes))
    shown.push({ changes: group, plan: await createPlan(session, group, false) });
  const plans = shown.map(({ plan }) => plan);
  await showPlans(session, plans);
  const deletions = plans
    .flatMap(({ workloads }) => workloads)
    .filter(({ action }) => action === Action.DELETE).length;
  const canAsk = session.io.terminal !== undefined;
  const question =
    deletions > 0 && canAsk
      ? `Apply, and delete ${formatCount(deletions, 'workload')}?`
      : undefined;
  const wasAsked = await confirmWarnings(invocation, collectWarnings(plans), {
    ...(question === undefined ? {} : { question }),
    areShown: !session.isStructured,
  });
  const workloads: Workload[] = [];
  for (const [index, group] of shown.entries()) {
    try {
      workloads.push(
        ...(await executeGroup(invocation, group, { index, groups: shown.length, wasAsked })),
      );
    } catch (reason) {
      if (index > 0)
        await session.printNotice(
          `cloudlessctl: applied before the failure: ${formatCount(workloads.length, 'workload')}; not applied: ${shown.slice(index).flatMap(describeGroup).join(', ')}`,
        );
      throw reason;
    }
  }
  return workloads;
}

function describeGroup({ plan }: ShownPlan): readonly string[] {
  return plan.workloads.filter(hasEffect).map(({ namespace, name }) => `${namespace}/${name}`);
}

/** The place of a group in the command. */
interface GroupContext {
  /** Number of the group, from 0. */
  readonly index: number;
  /** Number of all groups. */
  readonly groups: number;
  /** True when the user was asked about the plans and has confirmed them. */
  readonly wasAsked: boolean;
}

/**
 * Executes one plan. A plan that is outdated is made and shown again, when the user has not confirmed
 * the plan, or when an earlier group of the same command has changed the cluster and there are no
 * new warnings.
 */
async function executeGroup(
  invocation: Invocation,
  group: ShownPlan,
  { index, groups, wasAsked }: GroupContext,
): Promise<readonly Workload[]> {
  const { session } = invocation;
  const isAccepted = hasFlag(invocation, 'acceptWarnings');
  const requestId = session.getRequestId(groups > 1 ? `${index + 1}` : undefined);
  for (let attempt = 1; ; attempt += 1) {
    try {
      const executed = await session.client.executePlan(
        { id: group.plan.id, requestId },
        session.getCallOptions(),
      );
      await printExecuted(session, executed);
      return executed.workloads;
    } catch (reason) {
      if (!(reason instanceof ConnectError) || reason.code !== Code.Aborted) throw reason;
      if (wasAsked && index === 0)
        throw new CliFailure(
          ExitCode.conflict,
          `nothing was applied: the cluster has changed since the plan was shown; run the command again. ${reason.rawMessage}`,
          { cause: reason },
        );
      if (attempt === MAX_ATTEMPTS) throw reason;
      const before = collectWarnings([group.plan]);
      group.plan = await createPlan(session, group.changes, false);
      await session.printNotice('the cluster has changed, the new plan is:');
      await showPlans(session, [group.plan]);
      if (!isAccepted) requireSameWarnings(before, collectWarnings([group.plan]));
    }
  }
}

async function showPlans(session: CliSession, plans: readonly Plan[]): Promise<void> {
  if (session.isStructured) return;
  await session.print(plans.map((plan) => formatPlannedChanges(plan, session.style)).join(''));
}

async function waitUntilApplied(invocation: Invocation, workload: Workload): Promise<Workload> {
  const { session } = invocation;
  if (workload.deletionRequestedAt === undefined)
    return waitUntilSettled(session, workload, getWaitOptions(invocation));
  await waitUntilDeleted(session, workload);
  return workload;
}
