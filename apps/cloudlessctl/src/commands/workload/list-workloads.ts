import type { Command } from 'commander';
import { WorkloadSchema } from '@cloudless/api';
import type { Workload } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { parseWorkloadName } from '../../names.js';
import type { CliSession } from '../../call/cli-session.js';
import { toMessageJson } from '../../call/cli-session.js';
import { formatWorkloadDescription } from '../../views/workload-description.js';
import { formatWorkloadTable } from '../../views/workload-view.js';
import { hasFlag, getTextOption } from '../options.js';
import { listRecentEvents } from '../event/event-commands.js';

/** Workloads of one page. The API allows 1000; smaller pages keep each response small. */
const PAGE_SIZE = 500;

/** Adds the options that select the workloads or nodes to list. */
export function addListOptions(command: Command): Command {
  return command
    .option('-A, --all-namespaces', 'include all namespaces')
    .option('-l, --selector <selector>', 'only with these labels, for example disk=ssd');
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

/** Shows workloads by name: in JSON or YAML, one workload as an object, several as a list. */
export async function getWorkloads(
  { session }: Invocation,
  names: readonly string[],
): Promise<void> {
  const workloadNames = names.map((name) => parseWorkloadName(name, session.settings.namespace));
  const workloads: Workload[] = [];
  for (const name of workloadNames)
    workloads.push(await session.client.getWorkload(name, session.getCallOptions()));
  const [only] = workloads;
  if (session.isStructured && workloads.length === 1 && only !== undefined)
    await session.printValue(toMessageJson(WorkloadSchema, only));
  else await printWorkloads(session, workloads);
}

/**
 * Shows the spec, the status and the newest events of one workload.
 * @param text - `[namespace/]name`.
 */
export async function describeWorkload({ session }: Invocation, text: string): Promise<void> {
  const name = parseWorkloadName(text, session.settings.namespace);
  const workload = await session.client.getWorkload(name, session.getCallOptions());
  if (session.isStructured) return session.printValue(toMessageJson(WorkloadSchema, workload));
  const events = await listRecentEvents(session, {
    namespace: name.namespace,
    workload: name.name,
  });
  await session.print(formatWorkloadDescription(workload, events, session.nowMs, session.style));
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
