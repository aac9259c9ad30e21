import type { Command } from 'commander';
import { ConnectError, Code } from '@connectrpc/connect';
import {
  WorkloadSchema,
  ExplainWorkloadResponseSchema,
  WorkloadStatus_Phase,
} from '@cloudless/api';
import type { Workload } from '@cloudless/api';
import type { CommandTree, Invocation } from '../command-tree.js';
import { usageFailure } from '../failure.js';
import { withEnvFiles } from '../flags/env-file.js';
import { parseWorkloadName } from '../names.js';
import type { WorkloadName } from '../names.js';
import type { Session } from '../session.js';
import { messageJson } from '../session.js';
import { addSpecFlags, needsPresentSpec, parseWholeNumber, specFromFlags } from '../spec-flags.js';
import { describeWorkload, workloadTable } from '../views/workload-view.js';
import { explainText } from '../views/plan-view.js';
import { labelOf, waitUntilDeleted, waitUntilSettled } from '../wait/wait-workload.js';
import {
  commandAfterSeparator,
  flagOption,
  operand,
  requireOperands,
  textOption,
} from './options.js';
import { addPlanOptions, throughPlan } from './plan-command.js';
import { recentEvents } from './event-commands.js';

const PAGE_SIZE = 500;
/**
 * Number of attempts of an update that reads the workload first and conflicts with other updates.
 */
const MAX_UPDATE_ATTEMPTS = 4;

/** Adds the subcommands that exist only below `workload`. */
export function addWorkloadCommands(tree: CommandTree, parent: Command): void {
  const createCommand = tree.leaf(
    parent,
    'create <name> [command...]',
    'create a workload; its command follows --',
    createWorkload,
  );
  addSpecFlags(createCommand);
  addWait(createCommand);
  const update = tree.leaf(
    parent,
    'update <name> [command...]',
    'change only the fields that the flags set',
    updateWorkload,
  );
  addSpecFlags(update);
  addWait(update);
  addListOptions(tree.leaf(parent, 'list', 'list workloads', listWorkloads)).alias('ls');
  tree.leaf(parent, 'get <names...>', 'show workloads', (invocation) =>
    getWorkloads(invocation, invocation.operands),
  );
  tree.leaf(parent, 'describe <name>', 'show details of a workload', (invocation) =>
    describe(invocation, operand(invocation, 0, 'name')),
  );
}

/** Adds `scale`, `delete` and `explain`, which exist below `workload` and at the top level. */
export function addSharedWorkloadCommands(tree: CommandTree, parent: Command): void {
  addPlanOptions(
    addWait(
      tree.leaf(parent, 'scale [name] [replicas]', 'set the number of replicas', scaleWorkload),
    ),
  );
  addWait(tree.leaf(parent, 'delete <names...>', 'delete workloads', deleteWorkloads)).option(
    '--ignore-not-found',
    'succeed if a workload does not exist',
  );
  tree.leaf(
    parent,
    'explain <name>',
    'explain where replicas are placed, or why they are not',
    explain,
  );
}

/** Adds the options that select workloads or nodes of a list. */
export function addListOptions(command: Command): Command {
  return command
    .option('-A, --all-namespaces', 'include all namespaces')
    .option('-l, --selector <selector>', 'only with these labels, for example disk=ssd');
}

/** Adds `--wait`. */
export function addWait(command: Command): Command {
  return command.option('--wait', 'wait until the change is complete, at most 10m or --timeout');
}

/** Lists the workloads of a namespace, or of all namespaces with `--all-namespaces`. */
export async function listWorkloads(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const namespace = flagOption(invocation, 'allNamespaces') ? '' : session.settings.namespace;
  const labelSelector = textOption(invocation, 'selector') ?? '';
  const workloads: Workload[] = [];
  let pageToken = '';
  do {
    const page = await session.client.listWorkloads(
      { namespace, labelSelector, pageSize: PAGE_SIZE, pageToken },
      session.callOptions(),
    );
    workloads.push(...page.workloads);
    pageToken = page.nextPageToken;
  } while (pageToken !== '');
  if (workloads.length === 0 && !session.structured) {
    await session.note(
      namespace === '' ? 'no workloads' : `no workloads in namespace ${namespace}`,
    );
    return;
  }
  await printWorkloads(session, workloads);
}

/** Shows the named workloads. */
export async function getWorkloads(
  { session }: Invocation,
  names: readonly string[],
): Promise<void> {
  const wanted = names.map((name) => parseWorkloadName(name, session.settings.namespace));
  const found: Workload[] = [];
  for (const name of wanted)
    found.push(await session.client.getWorkload(name, session.callOptions()));
  const [only] = found;
  if (session.structured && found.length === 1 && only !== undefined)
    await session.printValue(messageJson(WorkloadSchema, only));
  else await printWorkloads(session, found);
}

/** Shows everything about one workload. */
export async function describe({ session }: Invocation, given: string): Promise<void> {
  const name = parseWorkloadName(given, session.settings.namespace);
  const workload = await session.client.getWorkload(name, session.callOptions());
  if (session.structured) return session.printValue(messageJson(WorkloadSchema, workload));
  const events = await recentEvents(session, { namespace: name.namespace, workload: name.name });
  await session.print(describeWorkload(workload, events, session.nowMs, session.style));
}

async function createWorkload(invocation: Invocation): Promise<void> {
  const { session, options } = invocation;
  const name = parseWorkloadName(operand(invocation, 0, 'name'), session.settings.namespace);
  const command = commandAfterSeparator(
    invocation,
    1,
    'cloudlessctl workload create web -- sleep 60',
  );
  if (command.length === 0 && options['image'] === undefined)
    throw usageFailure('nothing to run: give --image, or a command after --');
  const { spec } = specFromFlags(await withEnvFiles(options, session.io), command);
  const created = await session.client.createWorkload(
    { ...name, spec, requestId: session.requestId() },
    session.callOptions(),
  );
  await finishChange(invocation, created, 'created');
}

async function updateWorkload(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const name = parseWorkloadName(operand(invocation, 0, 'name'), session.settings.namespace);
  const options = await withEnvFiles(invocation.options, session.io);
  const command = commandAfterSeparator(
    invocation,
    1,
    'cloudlessctl workload update web -- sleep 60',
  );
  // Validates the flags before anything is sent.
  if (specFromFlags(options, command).paths.length === 0)
    throw usageFailure('nothing to change: give at least one flag, or a command after --');
  const updated = await sendUpdate(session, name, options, command);
  await finishChange(invocation, updated, 'updated');
}

async function sendUpdate(
  session: Session,
  name: WorkloadName,
  options: Invocation['options'],
  command: readonly string[],
): Promise<Workload> {
  for (let attempt = 1; ; attempt += 1) {
    // An update replaces a map as a whole. So the current map is read, the flags are applied to it,
    // and the expected generation makes the coordinator refuse the update after a concurrent
    // change.
    const present = needsPresentSpec(options)
      ? await session.client.getWorkload(name, session.callOptions())
      : undefined;
    const { spec, paths } = specFromFlags(options, command, present?.spec);
    const fence = present === undefined ? {} : { expectedGeneration: present.generation };
    const request = {
      ...name,
      spec,
      updateMask: { paths: [...paths] },
      requestId: session.requestId(),
      ...fence,
    };
    try {
      return await session.client.updateWorkload(request, session.callOptions());
    } catch (reason) {
      const overtaken =
        present !== undefined && reason instanceof ConnectError && reason.code === Code.Aborted;
      if (!overtaken || attempt === MAX_UPDATE_ATTEMPTS) throw reason;
    }
  }
}

async function scaleWorkload(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const scaling = () => {
    requireOperands(invocation, 'name', 'replicas');
    const name = parseWorkloadName(operand(invocation, 0, 'name'), session.settings.namespace);
    return {
      ...name,
      replicas: parseWholeNumber(
        'the number of replicas',
        operand(invocation, 1, 'number of replicas'),
      ),
    };
  };
  if (await throughPlan(invocation, () => [{ change: { case: 'scale', value: scaling() } }]))
    return;
  const { replicas, ...name } = scaling();
  const scaled = await session.client.scaleWorkload(
    { ...name, replicas, requestId: session.requestId() },
    session.callOptions(),
  );
  await finishChange(invocation, scaled, `scaled to ${replicas}`);
}

async function deleteWorkloads(invocation: Invocation): Promise<void> {
  const { session, operands } = invocation;
  const [first = '', ...others] = operands;
  const given = others.length > 0 && ['workload', 'workloads'].includes(first) ? others : operands;
  const names = given.map((text) => parseWorkloadName(text, session.settings.namespace));
  const deleted: Workload[] = [];
  for (const name of names) {
    const requestId = session.requestId(
      names.length > 1 ? `${name.namespace}/${name.name}` : undefined,
    );
    try {
      deleted.push(
        await session.client.deleteWorkload({ ...name, requestId }, session.callOptions()),
      );
    } catch (reason) {
      if (
        !flagOption(invocation, 'ignoreNotFound') ||
        !(reason instanceof ConnectError) ||
        reason.code !== Code.NotFound
      )
        throw reason;
      await session.tell(`${labelOf(name)}: not found`);
    }
  }
  for (const workload of deleted) {
    if (flagOption(invocation, 'wait')) {
      const replicas = [...(await waitUntilDeleted(session, workload))];
      if (workload.status !== undefined) workload.status.replicas = replicas;
    } else
      await session.tell(
        `${labelOf(workload)}: ${workload.status?.phase === WorkloadStatus_Phase.TERMINATING ? 'is being deleted' : 'deleted'}`,
      );
  }
  if (session.structured) await printWorkloads(session, deleted);
}

async function explain(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const name = parseWorkloadName(operand(invocation, 0, 'name'), session.settings.namespace);
  const explained = await session.client.explainWorkload(name, session.callOptions());
  if (session.structured)
    await session.printValue(messageJson(ExplainWorkloadResponseSchema, explained));
  else await session.print(explainText(explained, session.nowMs, session.style));
}

/** Prints what was done to a workload; with `--wait` it waits until the change is complete. */
export async function finishChange(
  invocation: Invocation,
  workload: Workload,
  done: string,
): Promise<void> {
  const { session } = invocation;
  await session.tell(`${labelOf(workload)}: ${done}`);
  const final = flagOption(invocation, 'wait')
    ? await waitUntilSettled(session, workload)
    : workload;
  if (session.structured) await session.printValue(messageJson(WorkloadSchema, final));
}

/** Prints workloads as a table, or as a list in JSON or YAML. */
export async function printWorkloads(
  session: Session,
  workloads: readonly Workload[],
): Promise<void> {
  if (session.structured) {
    await session.printValue({
      workloads: workloads.map((workload) => messageJson(WorkloadSchema, workload)),
    });
  } else {
    await session.print(
      workloadTable(workloads, session.nowMs, session.style, session.settings.output === 'wide'),
    );
  }
}
