import type { Command } from 'commander';
import { ConnectError, Code } from '@connectrpc/connect';
import {
  WorkloadSchema,
  ExplainWorkloadResponseSchema,
  WorkloadStatus_Phase,
} from '@cloudless/api';
import type { Workload } from '@cloudless/api';
import type { CommandTree, Invocation } from '../../command-tree.js';
import { createUsageFailure } from '../../call/failure.js';
import { withEnvFiles } from '../../flags/env-file.js';
import { parseWorkloadName } from '../../names.js';
import type { WorkloadName } from '../../names.js';
import type { CliSession } from '../../call/cli-session.js';
import { toMessageJson } from '../../call/cli-session.js';
import {
  addSpecFlags,
  needsCurrentSpec,
  parseWholeNumber,
  createSpecPatch,
} from '../../flags/spec-flags.js';
import { formatWorkloadDescription, formatWorkloadTable } from '../../views/workload-view.js';
import { formatExplanation } from '../../views/plan-view.js';
import {
  formatWorkloadName,
  waitUntilDeleted,
  waitUntilSettled,
} from '../../wait/wait-workload.js';
import {
  getCommandAfterSeparator,
  hasFlag,
  requireOperand,
  requireOperands,
  getTextOption,
} from '../options.js';
import { addPlanOptions, handlePlanOptions } from '../plan/plan-options.js';
import { listRecentEvents } from '../event/event-commands.js';

const PAGE_SIZE = 500;
/**
 * Number of attempts of an update that reads the workload first and conflicts with other updates.
 */
const MAX_UPDATE_ATTEMPTS = 4;

/** Adds the subcommands that exist only below `workload`. */
export function addWorkloadCommands(tree: CommandTree, parent: Command): void {
  const createCommand = tree.addCommand(
    parent,
    'create <name> [command...]',
    'create a workload; its command follows --',
    createWorkload,
  );
  addSpecFlags(createCommand);
  addWaitOption(createCommand);
  const update = tree.addCommand(
    parent,
    'update <name> [command...]',
    'change only the fields that the flags set',
    updateWorkload,
  );
  addSpecFlags(update);
  addWaitOption(update);
  addListOptions(tree.addCommand(parent, 'list', 'list workloads', listWorkloads)).alias('ls');
  tree.addCommand(parent, 'get <names...>', 'show workloads', (invocation) =>
    getWorkloads(invocation, invocation.operands),
  );
  tree.addCommand(parent, 'describe <name>', 'show details of a workload', (invocation) =>
    describeWorkload(invocation, requireOperand(invocation, 0, 'name')),
  );
}

/** Adds `scale`, `delete` and `explain`, which exist below `workload` and at the top level. */
export function addSharedWorkloadCommands(tree: CommandTree, parent: Command): void {
  addPlanOptions(
    addWaitOption(
      tree.addCommand(
        parent,
        'scale [name] [replicas]',
        'set the number of replicas',
        scaleWorkload,
      ),
    ),
  );
  addWaitOption(
    tree.addCommand(parent, 'delete <names...>', 'delete workloads', deleteWorkloads),
  ).option('--ignore-not-found', 'succeed if a workload does not exist');
  tree.addCommand(
    parent,
    'explain <name>',
    'explain where replicas are placed, or why they are not',
    explainWorkload,
  );
}

/** Adds the options that select workloads or nodes of a list. */
export function addListOptions(command: Command): Command {
  return command
    .option('-A, --all-namespaces', 'include all namespaces')
    .option('-l, --selector <selector>', 'only with these labels, for example disk=ssd');
}

/** Adds `--wait`. */
export function addWaitOption(command: Command): Command {
  return command.option('--wait', 'wait until the change is complete, at most 10m or --timeout');
}

/** Lists the workloads of a namespace, or of all namespaces with `--all-namespaces`. */
export async function listWorkloads(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const namespace = hasFlag(invocation, 'allNamespaces') ? '' : session.settings.namespace;
  const labelSelector = getTextOption(invocation, 'selector') ?? '';
  const workloads: Workload[] = [];
  let pageToken = '';
  do {
    const page = await session.client.listWorkloads(
      { namespace, labelSelector, pageSize: PAGE_SIZE, pageToken },
      session.getCallOptions(),
    );
    workloads.push(...page.workloads);
    pageToken = page.nextPageToken;
  } while (pageToken !== '');
  if (workloads.length === 0 && !session.isStructured) {
    await session.printNotice(
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
    found.push(await session.client.getWorkload(name, session.getCallOptions()));
  const [only] = found;
  if (session.isStructured && found.length === 1 && only !== undefined)
    await session.printValue(toMessageJson(WorkloadSchema, only));
  else await printWorkloads(session, found);
}

/** Shows everything about one workload. */
export async function describeWorkload({ session }: Invocation, given: string): Promise<void> {
  const name = parseWorkloadName(given, session.settings.namespace);
  const workload = await session.client.getWorkload(name, session.getCallOptions());
  if (session.isStructured) return session.printValue(toMessageJson(WorkloadSchema, workload));
  const events = await listRecentEvents(session, {
    namespace: name.namespace,
    workload: name.name,
  });
  await session.print(formatWorkloadDescription(workload, events, session.nowMs, session.style));
}

async function createWorkload(invocation: Invocation): Promise<void> {
  const { session, options } = invocation;
  const name = parseWorkloadName(requireOperand(invocation, 0, 'name'), session.settings.namespace);
  const command = getCommandAfterSeparator(
    invocation,
    1,
    'cloudlessctl workload create web -- sleep 60',
  );
  if (command.length === 0 && options['image'] === undefined)
    throw createUsageFailure('nothing to run: give --image, or a command after --');
  const { spec } = createSpecPatch(await withEnvFiles(options, session.io), command);
  const created = await session.client.createWorkload(
    { ...name, spec, requestId: session.getRequestId() },
    session.getCallOptions(),
  );
  await reportChange(invocation, created, 'created');
}

async function updateWorkload(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const name = parseWorkloadName(requireOperand(invocation, 0, 'name'), session.settings.namespace);
  const options = await withEnvFiles(invocation.options, session.io);
  const command = getCommandAfterSeparator(
    invocation,
    1,
    'cloudlessctl workload update web -- sleep 60',
  );
  // Validates the flags before anything is sent.
  if (createSpecPatch(options, command).paths.length === 0)
    throw createUsageFailure('nothing to change: give at least one flag, or a command after --');
  const updated = await sendUpdate(session, name, options, command);
  await reportChange(invocation, updated, 'updated');
}

async function sendUpdate(
  session: CliSession,
  name: WorkloadName,
  options: Invocation['options'],
  command: readonly string[],
): Promise<Workload> {
  for (let attempt = 1; ; attempt += 1) {
    // An update replaces a map as a whole. So the current map is read, the flags are applied to it,
    // and the expected generation makes the coordinator refuse the update after a concurrent
    // change.
    const present = needsCurrentSpec(options)
      ? await session.client.getWorkload(name, session.getCallOptions())
      : undefined;
    const { spec, paths } = createSpecPatch(options, command, present?.spec);
    const precondition = present === undefined ? {} : { expectedGeneration: present.generation };
    const request = {
      ...name,
      spec,
      updateMask: { paths: [...paths] },
      requestId: session.getRequestId(),
      ...precondition,
    };
    try {
      return await session.client.updateWorkload(request, session.getCallOptions());
    } catch (reason) {
      const conflicted =
        present !== undefined && reason instanceof ConnectError && reason.code === Code.Aborted;
      if (!conflicted || attempt === MAX_UPDATE_ATTEMPTS) throw reason;
    }
  }
}

async function scaleWorkload(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const readScaling = () => {
    requireOperands(invocation, 'name', 'replicas');
    const name = parseWorkloadName(
      requireOperand(invocation, 0, 'name'),
      session.settings.namespace,
    );
    return {
      ...name,
      replicas: parseWholeNumber(
        'the number of replicas',
        requireOperand(invocation, 1, 'number of replicas'),
      ),
    };
  };
  if (
    await handlePlanOptions(invocation, () => [{ change: { case: 'scale', value: readScaling() } }])
  )
    return;
  const { replicas, ...name } = readScaling();
  const scaled = await session.client.scaleWorkload(
    { ...name, replicas, requestId: session.getRequestId() },
    session.getCallOptions(),
  );
  await reportChange(invocation, scaled, `scaled to ${replicas}`);
}

async function deleteWorkloads(invocation: Invocation): Promise<void> {
  const { session, operands } = invocation;
  const [first = '', ...others] = operands;
  const given = others.length > 0 && ['workload', 'workloads'].includes(first) ? others : operands;
  const names = given.map((text) => parseWorkloadName(text, session.settings.namespace));
  const deleted: Workload[] = [];
  for (const name of names) {
    const requestId = session.getRequestId(
      names.length > 1 ? `${name.namespace}/${name.name}` : undefined,
    );
    try {
      deleted.push(
        await session.client.deleteWorkload({ ...name, requestId }, session.getCallOptions()),
      );
    } catch (reason) {
      if (
        !hasFlag(invocation, 'ignoreNotFound') ||
        !(reason instanceof ConnectError) ||
        reason.code !== Code.NotFound
      )
        throw reason;
      await session.printStatus(`${formatWorkloadName(name)}: not found`);
    }
  }
  for (const workload of deleted) {
    if (hasFlag(invocation, 'wait')) {
      const replicas = [...(await waitUntilDeleted(session, workload))];
      if (workload.status !== undefined) workload.status.replicas = replicas;
    } else
      await session.printStatus(
        `${formatWorkloadName(workload)}: ${workload.status?.phase === WorkloadStatus_Phase.TERMINATING ? 'is being deleted' : 'deleted'}`,
      );
  }
  if (session.isStructured) await printWorkloads(session, deleted);
}

async function explainWorkload(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const name = parseWorkloadName(requireOperand(invocation, 0, 'name'), session.settings.namespace);
  const explained = await session.client.explainWorkload(name, session.getCallOptions());
  if (session.isStructured)
    await session.printValue(toMessageJson(ExplainWorkloadResponseSchema, explained));
  else await session.print(formatExplanation(explained, session.nowMs, session.style));
}

/** Prints what was done to a workload; with `--wait` it waits until the change is complete. */
export async function reportChange(
  invocation: Invocation,
  workload: Workload,
  done: string,
): Promise<void> {
  const { session } = invocation;
  await session.printStatus(`${formatWorkloadName(workload)}: ${done}`);
  const final = hasFlag(invocation, 'wait') ? await waitUntilSettled(session, workload) : workload;
  if (session.isStructured) await session.printValue(toMessageJson(WorkloadSchema, final));
}

/** Prints workloads as a table, or as a list in JSON or YAML. */
export async function printWorkloads(
  session: CliSession,
  workloads: readonly Workload[],
): Promise<void> {
  if (session.isStructured) {
    await session.printValue({
      workloads: workloads.map((workload) => toMessageJson(WorkloadSchema, workload)),
    });
  } else {
    await session.print(
      formatWorkloadTable(
        workloads,
        session.nowMs,
        session.style,
        session.settings.output === 'wide',
      ),
    );
  }
}
