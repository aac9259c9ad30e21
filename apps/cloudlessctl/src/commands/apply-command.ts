import type { Command } from 'commander';
import { WorkloadPlanSchema, WorkloadPlan_Action } from '@cloudless/api';
import type { Workload, WorkloadPlan } from '@cloudless/api';
import { ConnectError } from '@connectrpc/connect';
import type { CommandTree, Invocation } from '../command-tree.js';
import { CliFailure, ExitCode, isTransient, usageFailure } from '../failure.js';
import type { CliIo } from '../io.js';
import { parseManifest } from '../manifest/parse-manifest.js';
import type { ManifestWorkload } from '../manifest/parse-manifest.js';
import { MAX_FILE_BYTES, formatProblem } from '../manifest/yaml-reader.js';
import { messageJson } from '../session.js';
import type { Session } from '../session.js';
import { planText } from '../views/plan-view.js';
import { labelOf, waitUntilSettled } from '../wait/wait-workload.js';
import { collect, flagOption, listOption } from './options.js';
import { addPlanOptions, throughPlan, type ChangeInit } from './plan-command.js';
import { printWorkloads } from './workload-commands.js';

/** Adds `apply`. */
export function addApplyCommand(tree: CommandTree, parent: Command): void {
  addPlanOptions(
    tree.leaf(
      parent,
      'apply',
      'create or update workloads from manifests; prints the differences and the plan',
      apply,
    ),
  )
    .option(
      '-f, --filename <path>',
      'manifest file, directory, or - for standard input (repeatable)',
      collect,
    )
    .option('--dry-run', 'print the plan and change nothing')
    .option('--wait', 'wait until the change is complete, at most 10m or --timeout');
}

interface Planned {
  readonly workload: ManifestWorkload;
  readonly plan: WorkloadPlan;
}

/**
 * Reads all manifests, plans all workloads, then applies them. Nothing is changed when a document
 * is invalid or the coordinator refuses one of the plans.
 */
async function apply(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  if (await throughPlan(invocation, () => appliesOf(invocation))) return;
  const workloads = await readManifests(session, filesOf(invocation));
  const planned = await planAll(session, workloads);
  if (flagOption(invocation, 'dryRun')) return printPlans(session, planned);
  const applied: Workload[] = [];
  for (const { workload, plan } of planned) {
    if (!session.structured) await session.print(planText(labelOf(workload), plan, session.style));
    applied.push(await applyOne(session, workload, plan, planned.length > 1));
  }
  const final: Workload[] = [];
  for (const workload of applied)
    final.push(
      flagOption(invocation, 'wait') ? await waitUntilSettled(session, workload) : workload,
    );
  if (session.structured) await printWorkloads(session, final);
}

function filesOf(invocation: Invocation): readonly string[] {
  const paths = listOption(invocation, 'filename');
  if (paths.length === 0)
    throw usageFailure("required option '-f, --filename <path>' not specified");
  return paths;
}

/** The changes that the manifests describe, for one plan of all of them. */
async function appliesOf(invocation: Invocation): Promise<readonly ChangeInit[]> {
  if (flagOption(invocation, 'dryRun'))
    throw usageFailure(
      '--dry-run and --plan exclude each other: --dry-run only prints the plan, --plan also stores it',
    );
  const workloads = await readManifests(invocation.session, filesOf(invocation));
  return workloads.map(({ namespace, name, spec }) => ({
    change: { case: 'apply', value: { namespace, name, spec, updateMask: { paths: ['*'] } } },
  }));
}

/** Plans every workload. @throws {@link ConnectError} that lists the refusals of all workloads. */
async function planAll(
  session: Session,
  workloads: readonly ManifestWorkload[],
): Promise<readonly Planned[]> {
  const planned: Planned[] = [];
  const refusals: { readonly workload: ManifestWorkload; readonly reason: ConnectError }[] = [];
  for (const workload of workloads) {
    const { namespace, name, spec } = workload;
    const request = { namespace, name, spec, updateMask: { paths: ['*'] } };
    try {
      planned.push({
        workload,
        plan: await session.client.planWorkload(request, session.callOptions()),
      });
    } catch (reason) {
      if (!(reason instanceof ConnectError) || isTransient(reason)) throw reason;
      refusals.push({ workload, reason });
    }
  }
  const [first] = refusals;
  if (first === undefined) return planned;
  const lines = refusals.map(
    ({ workload, reason }) => `${labelOf(workload)}: ${reason.rawMessage}`,
  );
  throw new ConnectError(['nothing was applied:', ...lines].join('\n'), first.reason.code);
}

async function applyOne(
  session: Session,
  { namespace, name, spec }: ManifestWorkload,
  { action, generation: expectedGeneration }: WorkloadPlan,
  many: boolean,
): Promise<Workload> {
  const requestId = session.requestId(many ? `${namespace}/${name}` : undefined);
  if (action === WorkloadPlan_Action.NOTHING)
    return session.client.getWorkload({ namespace, name }, session.callOptions());
  if (action === WorkloadPlan_Action.CREATE) {
    const created = await session.client.createWorkload(
      { namespace, name, spec, requestId },
      session.callOptions(),
    );
    await session.tell(`${labelOf(created)}: created`);
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
  const updated = await session.client.updateWorkload(request, session.callOptions());
  await session.tell(`${labelOf(updated)}: updated`);
  return updated;
}

async function printPlans(session: Session, planned: readonly Planned[]): Promise<void> {
  if (!session.structured) {
    for (const { workload, plan } of planned)
      await session.print(planText(labelOf(workload), plan, session.style));
    return;
  }
  const plans = planned.map(({ workload: { namespace, name }, plan }) => ({
    namespace,
    name,
    plan: messageJson(WorkloadPlanSchema, plan),
  }));
  await session.printValue({ plans });
}

async function readManifests(
  session: Session,
  paths: readonly string[],
): Promise<readonly ManifestWorkload[]> {
  const workloads: ManifestWorkload[] = [];
  const problems: string[] = [];
  const declaredIn = new Map<string, string>();
  for (const { file, bytes } of await readFiles(session.io, paths)) {
    const manifest = parseManifest(file, bytes, session.settings.namespace);
    problems.push(...manifest.problems.map(formatProblem));
    for (const workload of manifest.workloads) {
      const key = `${workload.namespace}/${workload.name}`;
      const other = declaredIn.get(key);
      if (other !== undefined && other !== file)
        problems.push(`${file}: the workload ${key} is already declared in ${other}`);
      declaredIn.set(key, file);
      workloads.push(workload);
    }
  }
  if (problems.length > 0)
    throw new CliFailure(ExitCode.usage, `nothing was applied:\n${problems.join('\n')}`);
  return workloads;
}

async function readFiles(
  io: CliIo,
  paths: readonly string[],
): Promise<readonly { readonly file: string; readonly bytes: Uint8Array }[]> {
  const files: { file: string; bytes: Uint8Array }[] = [];
  for (const path of paths) {
    if (path === '-') {
      const bytes = await io.stdin.readAll(MAX_FILE_BYTES);
      if (bytes === undefined)
        throw usageFailure('standard input is larger than 1 MiB; split the manifests');
      files.push({ file: '<stdin>', bytes });
      continue;
    }
    const names = await explained(path, () => io.files.list(path));
    const manifests = names?.filter((name) => /\.(ya?ml|json)$/.test(name)).sort();
    if (manifests?.length === 0)
      throw usageFailure(`${path}: no .yaml, .yml or .json file in this directory`);
    for (const file of manifests?.map((name) => `${path.replace(/\/+$/, '')}/${name}`) ?? [path]) {
      files.push({ file, bytes: await explained(file, () => io.files.read(file)) });
    }
  }
  return files;
}

async function explained<Result>(path: string, read: () => Promise<Result>): Promise<Result> {
  try {
    return await read();
  } catch (reason) {
    const missing = reason instanceof Error && 'code' in reason && reason.code === 'ENOENT';
    const message = missing
      ? 'no such file or directory'
      : reason instanceof Error
        ? reason.message
        : String(reason);
    throw new CliFailure(ExitCode.usage, `${path}: ${message}`, { cause: reason });
  }
}
