import type { Command } from 'commander';
import { ConnectError } from '@connectrpc/connect';
import { WorkloadPlanSchema, WorkloadPlan_Action } from '@cloudless/api';
import type { Workload, WorkloadPlan } from '@cloudless/api';
import { WAIT_CAPACITY_TEXT } from '../../wait/refusal-check.js';
import { getWaitOptions } from '../wait-options.js';
import type { CommandTree, Invocation } from '../../command-tree.js';
import { isTransient } from '../../call/call-failure.js';
import { createUsageFailure } from '../../call/failure.js';
import { collectValue } from '../../flags/flag-values.js';
import type { ManifestWorkload } from '../../manifest/parse-manifest.js';
import { toMessageJson } from '../../call/cli-session.js';
import type { CliSession } from '../../call/cli-session.js';
import { formatPlan } from '../../views/plan-view.js';
import { formatWorkloadName, waitUntilSettled } from '../../wait/wait-workload.js';
import { getListOption, hasFlag } from '../options.js';
import { addPlanOptions, handlePlanOptions, type ChangeInit } from '../plan/plan-options.js';
import { printWorkloads } from './list-workloads.js';
import { readManifests } from './read-manifests.js';

/** Adds `apply`. */
export function addApplyCommand(tree: CommandTree, parent: Command): void {
  addPlanOptions(
    tree.addCommand(
      parent,
      'apply',
      'create or update workloads from manifests; prints the differences and the plan',
      apply,
    ),
  )
    .option(
      '-f, --filename <path>',
      'manifest file, directory, or - for standard input (repeatable)',
      collectValue,
    )
    .option('--dry-run', 'print the plan and change nothing')
    .option('--wait', 'wait until the change is complete, at most 10m or --timeout')
    .option('--wait-capacity', WAIT_CAPACITY_TEXT);
}

interface PlannedWorkload {
  readonly workload: ManifestWorkload;
  readonly plan: WorkloadPlan;
}

/**
 * Reads all manifests, plans all workloads, then applies them. Nothing is changed when a document
 * is invalid or the coordinator refuses one of the plans.
 */
async function apply(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  if (await handlePlanOptions(invocation, () => readPlannedChanges(invocation))) return;
  const workloads = await readManifests(session, requireFilenames(invocation));
  const planned = await planAll(session, workloads);
  if (hasFlag(invocation, 'dryRun')) return printPlans(session, planned);
  const applied: Workload[] = [];
  for (const { workload, plan } of planned) {
    if (!session.isStructured)
      await session.print(formatPlan(formatWorkloadName(workload), plan, session.style));
    applied.push(await applyWorkload(session, workload, plan, planned.length > 1));
  }
  const final: Workload[] = [];
  for (const workload of applied)
    final.push(
      hasFlag(invocation, 'wait')
        ? await waitUntilSettled(session, workload, getWaitOptions(invocation))
        : workload,
    );
  if (session.isStructured) await printWorkloads(session, final);
}

function requireFilenames(invocation: Invocation): readonly string[] {
  const paths = getListOption(invocation, 'filename');
  if (paths.length === 0)
    throw createUsageFailure("required option '-f, --filename <path>' not specified");
  return paths;
}

/** Returns the changes that the manifests describe, for one plan of all workloads. */
async function readPlannedChanges(invocation: Invocation): Promise<readonly ChangeInit[]> {
  if (hasFlag(invocation, 'dryRun'))
    throw createUsageFailure(
      '--dry-run and --plan exclude each other: --dry-run only prints the plan, --plan also stores it',
    );
  const workloads = await readManifests(invocation.session, requireFilenames(invocation));
  return workloads.map(({ namespace, name, spec }) => ({
    change: { case: 'apply', value: { namespace, name, spec, updateMask: { paths: ['*'] } } },
  }));
}

/**
 * Plans every workload.
 * @throws {@link ConnectError} that lists the refusals of all workloads, with the code of the
 *   first. A connection error is thrown unchanged.
 */
async function planAll(
  session: CliSession,
  workloads: readonly ManifestWorkload[],
): Promise<readonly PlannedWorkload[]> {
  const planned: PlannedWorkload[] = [];
  const refusals: { readonly workload: ManifestWorkload; readonly reason: ConnectError }[] = [];
  for (const workload of workloads) {
    const { namespace, name, spec } = workload;
    const request = { namespace, name, spec, updateMask: { paths: ['*'] } };
    try {
      planned.push({
        workload,
        plan: await session.client.planWorkload(request, session.getCallOptions()),
      });
    } catch (reason) {
      if (!(reason instanceof ConnectError) || isTransient(reason)) throw reason;
      refusals.push({ workload, reason });
    }
  }
  const [first] = refusals;
  if (first === undefined) return planned;
  const lines = refusals.map(
    ({ workload, reason }) => `${formatWorkloadName(workload)}: ${reason.rawMessage}`,
  );
  const refusal = new ConnectError(
    ['nothing was applied:', ...lines].join('\n'),
    first.reason.code,
  );
  refusal.details = first.reason.details;
  throw refusal;
}

/**
 * Creates or updates a workload as planned.
 * @param isOneOfMany - True when the command applies several workloads, which need different
 *   request ids.
 * @returns The new state; the current state when the plan contains no change.
 */
async function applyWorkload(
  session: CliSession,
  { namespace, name, spec }: ManifestWorkload,
  { action, generation: expectedGeneration }: WorkloadPlan,
  isOneOfMany: boolean,
): Promise<Workload> {
  const requestId = session.getRequestId(isOneOfMany ? `${namespace}/${name}` : undefined);
  if (action === WorkloadPlan_Action.NOTHING)
    return session.client.getWorkload({ namespace, name }, session.getCallOptions());
  if (action === WorkloadPlan_Action.CREATE) {
    const created = await session.client.createWorkload(
      { namespace, name, spec, requestId },
      session.getCallOptions(),
    );
    await session.printStatus(`${formatWorkloadName(created)}: created`);
    return created;
  }
  // The mask `*` replaces the whole spec, except that a manifest without a replica count keeps the
  // current count. The expected generation makes the coordinator refuse the update when the
  // workload has changed since the plan was shown.
  const request = {
    namespace,
    name,
    spec,
    updateMask: { paths: ['*'] },
    requestId,
    expectedGeneration,
  };
  const updated = await session.client.updateWorkload(request, session.getCallOptions());
  await session.printStatus(`${formatWorkloadName(updated)}: updated`);
  return updated;
}

async function printPlans(session: CliSession, planned: readonly PlannedWorkload[]): Promise<void> {
  if (!session.isStructured) {
    for (const { workload, plan } of planned)
      await session.print(formatPlan(formatWorkloadName(workload), plan, session.style));
    return;
  }
  const plans = planned.map(({ workload: { namespace, name }, plan }) => ({
    namespace,
    name,
    plan: toMessageJson(WorkloadPlanSchema, plan),
  }));
  await session.printValue({ plans });
}
