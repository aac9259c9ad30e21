import type { JsonValue } from '@bufbuild/protobuf';
import { Code, ConnectError } from '@connectrpc/connect';
import { WorkloadPlan_Action as Action } from '@cloudless/api';
import type { Plan, Service, Workload, WorkloadPlan } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { isTransient } from '../../call/call-failure.js';
import type { CliSession } from '../../call/cli-session.js';
import { CliFailure, ExitCode } from '../../call/failure.js';
import { formatObjectName } from '../../object-name.js';
import { formatCount } from '../../output/human.js';
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
  listRefusals,
  predictBeforeConfigs,
  predictChanges,
  predictEach,
  type ChangeInit,
} from '../plan/predict-changes.js';
import { showChanges, type ObjectChanges } from '../plan/show-changes.js';
import { applyConfigs, deleteConfig } from '../config/apply-configs.js';
import { formatConfigChanges } from '../config/plan-configs.js';
import { toConfigJson } from '../config/show-configs.js';
import { executeChanges } from '../objects/execute-changes.js';
import { isDeletion, isPut } from '../objects/object-change.js';
import { ROUTE_CHANGES } from '../route/apply-routes.js';
import { formatRouteName } from '../route/find-route.js';
import { ROUTE_KIND } from '../route/show-routes.js';
import { waitForRollouts } from '../values/workload-uses.js';
import { SERVICE_CHANGES, printNotesOfServices } from '../service/apply-services.js';
import { formatServiceName } from '../service/find-service.js';
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

/** All changes that one apply makes. */
export interface ManifestChanges extends ObjectChanges {
  readonly workloads: readonly ChangeInit[];
}

/**
 * Shows the plan of all changes, asks when it has warnings or deletes objects, and executes it:
 * services before workloads, then routes, deletions of services and configs last. Configs are changed
 * first: the plan of a workload needs the configs that the workload uses. Routes are changed when the
 * workloads are, with `--wait` when these are complete: a route that changes its service leads to
 * replicas that exist, and no route leads to a service that is deleted. More changes of workloads
 * than one plan may contain are executed in groups, one after the other.
 * @throws {@link CliFailure} with exit code 9 when the plan is not confirmed, with exit code 4 when
 *   its outcome has changed since it was confirmed.
 */
export async function applyChanges(
  invocation: Invocation,
  changes: ManifestChanges,
): Promise<void> {
  const { session } = invocation;
  if (changes.configs.length > 0) await predictBeforeConfigs(session, changes.workloads);
  const configs = await applyConfigs(invocation, changes.configs);
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
  const final = hasFlag(invocation, 'wait')
    ? await waitUntilAllApplied(invocation, workloads, changes)
    : workloads;
  const routes = await executeChanges(session, ROUTE_CHANGES, changes.routes, applied.counts);
  await executeChanges(session, SERVICE_CHANGES, changes.services.filter(isDeletion));
  for (const change of changes.configs)
    if (change.action === 'DELETE') await deleteConfig(session, change);
  if (!session.isStructured) return;
  const list = (name: string, hasChanges: boolean, items: readonly JsonValue[]) =>
    hasChanges ? { [name]: [...items] } : {};
  await printApplied(session, final, {
    ...list('services', changes.services.length > 0, applied.services.map(SERVICE_KIND.toJson)),
    ...list('routes', changes.routes.length > 0, routes.map(ROUTE_KIND.toJson)),
    ...list('configs', changes.configs.length > 0, configs.map(toConfigJson)),
  });
}

/**
 * Waits until the workloads are complete, and the rollouts of changed configs. When the wait fails,
 * names the changes that are therefore not made.
 */
async function waitUntilAllApplied(
  invocation: Invocation,
  workloads: readonly Workload[],
  { services, routes, configs }: ManifestChanges,
): Promise<readonly Workload[]> {
  const { session } = invocation;
  const final: Workload[] = [];
  try {
    for (const workload of workloads) final.push(await waitUntilApplied(invocation, workload));
    const uses = configs.flatMap((change) => ('uses' in change ? change.uses : []));
    await waitForRollouts(session, uses, getWaitOptions(invocation));
    return final;
  } catch (reason) {
    const left = [
      ...routes.filter(({ action }) => action !== 'NOTHING').map(formatRouteName),
      ...services.filter(isDeletion).map(formatServiceName),
      ...configs.filter(isDeletion).map((config) => formatObjectName('config', config)),
    ];
    if (left.length > 0)
      await session.printNotice(
        `cloudlessctl: not applied, because the workloads are not complete: ${left.join(', ')}`,
      );
    throw reason;
  }
}

/** Prints the objects of an apply in JSON or YAML. Without other kinds, only workloads. */
async function printApplied(
  session: CliSession,
  workloads: readonly Workload[],
  others: Readonly<Record<string, JsonValue>>,
): Promise<void> {
  if (Object.keys(others).length === 0) return printWorkloads(session, workloads);
  await session.printValue({ workloads: workloads.map(WORKLOAD_KIND.toJson), ...others });
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
    if (refusals.length === 0) throw reason;
    throw listRefusals(refusals);
  }
}

/** The objects that an apply has changed, or has found as their manifests describe them. */
interface AppliedObjects {
  readonly workloads: readonly Workload[];
  readonly services: readonly Service[];
  /** Numbers of the objects that were changed, in words: `1 service`. */
  readonly counts: readonly string[];
}

/** Shows all changes, confirms them, and executes those of services and workloads. */
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
  if (!session.isStructured) {
    await showChanges(session, shown.length > 0 ? plans : predicted, changes);
    await session.print(formatConfigChanges(changes.configs.filter(isDeletion), session.style));
  }
  const wasAsked = await confirmApply(invocation, plans, changes);
  const puts = changes.services.filter(isPut);
  const services = await executeChanges(session, SERVICE_CHANGES, puts);
  const changedServices = puts.filter(({ action }) => action !== 'NOTHING').length;
  const workloads: Workload[] = [];
  for (const [index, group] of shown.entries()) {
    try {
      const context = { index, groups: shown.length, wasAsked, changedServices };
      workloads.push(...(await executeGroup(invocation, group, context)));
    } catch (reason) {
      const before = formatCounts(changedServices, workloads.length);
      if (before.length > 0)
        await session.printNotice(
          `cloudlessctl: applied before the failure: ${before.join(', ')}; not applied: ${shown.slice(index).flatMap(describeGroup).join(', ')}`,
        );
      throw reason;
    }
  }
  const changed = services.filter((_, index) => puts[index]?.action !== 'NOTHING');
  await printNotesOfServices(session, changed, workloads.length > 0);
  return { workloads, services, counts: formatCounts(changedServices, workloads.length) };
}

function formatCounts(services: number, workloads: number): readonly string[] {
  return [
    ...(services > 0 ? [formatCount(services, 'service')] : []),
    ...(workloads > 0 ? [formatCount(workloads, 'workload')] : []),
  ];
}

/**
 * Asks about warnings of the plans and about deletions.
 * @returns True when the user was asked and has confirmed.
 */
async function confirmApply(
  invocation: Invocation,
  plans: readonly Plan[],
  { services, routes, configs }: ManifestChanges,
): Promise<boolean> {
  const { session } = invocation;
  const workloads = plans.flatMap((plan) => plan.workloads);
  const deletions = [
    [workloads.filter(({ action }) => action === Action.DELETE).length, 'workload'],
    [services.filter(isDeletion).length, 'service'],
    [routes.filter(isDeletion).length, 'route'],
    [configs.filter(isDeletion).length, 'config'],
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
      if (!session.isStructured) await showChanges(session, [group.plan]);
      if (!isAccepted) requireSameWarnings(before, collectWarnings([group.plan]));
    }
  }
}

async function waitUntilApplied(invocation: Invocation, workload: Workload): Promise<Workload> {
  const { session } = invocation;
  if (workload.deletionRequestedAt === undefined)
    return waitUntilSettled(session, workload, getWaitOptions(invocation));
  await waitUntilDeleted(session, workload);
  return workload;
}
