import { Code, ConnectError } from '@connectrpc/connect';
import { WorkloadPlan_Action as Action } from '@cloudless/api';
import type { Plan, Service, Workload, WorkloadPlan } from '@cloudless/api';
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
import { readOverride } from '../plan/override-option.js';
import { printExecuted } from '../plan/execute-plan.js';
import {
  collectWarnings,
  createPlan,
  groupChanges,
  predictChanges,
  predictEach,
  type ChangeInit,
} from '../plan/predict-changes.js';
import { executeServiceChanges, formatServiceChanges } from '../service/apply-services.js';
import type { ServiceChange } from '../service/plan-services.js';
import { SERVICE_KIND } from '../service/show-services.js';
import { WORKLOAD_KIND, printWorkloads } from './list-workloads.js';

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

/** Changes of workloads and services that one apply makes. */
export interface ManifestChanges {
  readonly workloads: readonly ChangeInit[];
  readonly services: readonly ServiceChange[];
}

/**
 * Shows the plan of all changes, asks when it has warnings or deletes objects, and executes it:
 * services before workloads, deletions of services last. More changes of workloads than one plan may
 * contain are executed in groups, one after the other.
 * @throws {@link CliFailure} with exit code 9 when the plan is not confirmed, with exit code 4 when
 *   its outcome has changed since it was confirmed.
 */
export async function applyChanges(
  invocation: Invocation,
  changes: ManifestChanges,
): Promise<void> {
  const { session } = invocation;
  const predicted = await requirePredictions(session, changes.workloads);
  const applied = await confirmAndExecute(invocation, changes, predicted);
  const workloads: Workload[] = [];
  for (const { namespace, name } of predicted.flatMap((plan) => plan.workloads)) {
    workloads.push(
      applied.workloads.find(
        (workload) => workload.namespace === namespace && workload.name === name,
      ) ?? (await session.client.getWorkload({ namespace, name }, session.getCallOptions())),
    );
  }
  const final: Workload[] = [];
  for (const workload of workloads)
    final.push(
      hasFlag(invocation, 'wait') ? await waitUntilApplied(invocation, workload) : workload,
    );
  if (!session.isStructured) return;
  await printApplied(session, final, changes.services.length > 0 ? applied.services : undefined);
}

/** Prints the objects of an apply in JSON or YAML. Without services, only workloads. */
async function printApplied(
  session: CliSession,
  workloads: readonly Workload[],
  services: readonly Service[] | undefined,
): Promise<void> {
  if (services === undefined) return printWorkloads(session, workloads);
  await session.printValue({
    workloads: workloads.map(WORKLOAD_KIND.toJson),
    services: services.map(SERVICE_KIND.toJson),
  });
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

/** The objects that an apply has changed, or has found as their manifests describe them. */
interface AppliedObjects {
  readonly workloads: readonly Workload[];
  readonly services: readonly Service[];
}

/** Shows the changes, confirms and executes them. */
async function confirmAndExecute(
  invocation: Invocation,
  changes: ManifestChanges,
  predicted: readonly Plan[],
): Promise<AppliedObjects> {
  const { session } = invocation;
  const shown: ShownPlan[] = [];
  if (predicted.some(({ workloads }) => workloads.some(hasEffect)))
    for (const group of groupChanges(changes.workloads))
      shown.push({ changes: group, plan: await createPlan(session, group, false) });
  const plans = shown.map(({ plan }) => plan);
  await showPlans(session, shown.length > 0 ? plans : predicted, changes.services);
  const wasAsked = await confirmApply(invocation, plans, changes.services);
  const isDeletion = ({ action }: ServiceChange): boolean => action === 'DELETE';
  const puts = changes.services.filter((change) => !isDeletion(change));
  const services = await executeServiceChanges(session, puts);
  const changedServices = puts.filter(({ action }) => action !== 'NOTHING').length;
  const workloads: Workload[] = [];
  for (const [index, group] of shown.entries()) {
    try {
      const context = { index, groups: shown.length, wasAsked, changedServices };
      workloads.push(...(await executeGroup(invocation, group, context)));
    } catch (reason) {
      const before = [
        ...(changedServices > 0 ? [formatCount(changedServices, 'service')] : []),
        ...(index > 0 ? [formatCount(workloads.length, 'workload')] : []),
      ];
      if (before.length > 0)
        await session.printNotice(
          `cloudlessctl: applied before the failure: ${before.join(', ')}; not applied: ${shown.slice(index).flatMap(describeGroup).join(', ')}`,
        );
      throw reason;
    }
  }
  await executeServiceChanges(session, changes.services.filter(isDeletion));
  return { workloads, services };
}

/**
 * Asks about warnings of the plans and about deletions.
 * @returns True when the user was asked and has confirmed.
 */
async function confirmApply(
  invocation: Invocation,
  plans: readonly Plan[],
  services: readonly ServiceChange[],
): Promise<boolean> {
  const { session } = invocation;
  const workloads = plans.flatMap((plan) => plan.workloads);
  const deletions = [
    [workloads.filter(({ action }) => action === Action.DELETE).length, 'workload'],
    [services.filter(({ action }) => action === 'DELETE').length, 'service'],
  ] as const;
  const deleted = deletions
    .filter(([count]) => count > 0)
    .map(([count, noun]) => formatCount(count, noun));
  const question =
    deleted.length > 0 && session.io.terminal !== undefined
      ? `Apply, and delete ${deleted.join(' and ')}?`
      : undefined;
  return confirmWarnings(invocation, collectWarnings(plans), {
    ...(question === undefined ? {} : { question }),
    areShown: !session.isStructured,
  });
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
  /** Number of services that were changed before. */
  readonly changedServices: number;
}

/**
 * Executes one plan. A plan that is outdated is made and shown again, when the user has not confirmed
 * the plan, or when an earlier group of the same command has changed the cluster and there are no
 * new warnings.
 */
async function executeGroup(
  invocation: Invocation,
  group: ShownPlan,
  { index, groups, wasAsked, changedServices }: GroupContext,
): Promise<readonly Workload[]> {
  const { session } = invocation;
  const isAccepted = hasFlag(invocation, 'acceptWarnings');
  const requestId = session.getRequestId(groups > 1 ? `${index + 1}` : undefined);
  for (let attempt = 1; ; attempt += 1) {
    try {
      const executed = await session.client.executePlan(
        { id: group.plan.id, requestId, ...readOverride(invocation) },
        session.getCallOptions(),
      );
      await printExecuted(session, executed);
      return executed.workloads;
    } catch (reason) {
      if (!(reason instanceof ConnectError) || reason.code !== Code.Aborted) throw reason;
      if (wasAsked && index === 0)
        throw new CliFailure(
          ExitCode.conflict,
          `${changedServices > 0 ? 'no workload' : 'nothing'} was applied: the cluster has changed since the plan was shown; run the command again. ${reason.rawMessage}`,
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

async function showPlans(
  session: CliSession,
  plans: readonly Plan[],
  services: readonly ServiceChange[] = [],
): Promise<void> {
  if (session.isStructured) return;
  const isDeletion = ({ action }: ServiceChange): boolean => action === 'DELETE';
  await session.print(
    [
      formatServiceChanges(
        services.filter((change) => !isDeletion(change)),
        session.style,
      ),
      ...plans.map((plan) => formatPlannedChanges(plan, session.style)),
      formatServiceChanges(services.filter(isDeletion), session.style),
    ].join(''),
  );
}

async function waitUntilApplied(invocation: Invocation, workload: Workload): Promise<Workload> {
  const { session } = invocation;
  if (workload.deletionRequestedAt === undefined)
    return waitUntilSettled(session, workload, getWaitOptions(invocation));
  await waitUntilDeleted(session, workload);
  return workload;
}
