import { create } from '@bufbuild/protobuf';
import type { Command } from 'commander';
import { WorkloadSchema, WorkloadSpecSchema, WorkloadStatusSchema } from '@cloudless/api';
import type { Workload } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { printManifests } from '../../manifest/print-manifest.js';
import { parseWorkloadName } from '../../names.js';
import type { CliSession } from '../../call/cli-session.js';
import { toMessageJson } from '../../call/cli-session.js';
import { formatWorkloadDescription } from '../../views/workload-description.js';
import { formatWorkloadTable } from '../../views/workload-view.js';
import { listRecentEvents } from '../event/list-recent-events.js';
import {
  addOutputOptions,
  describeEmptyList,
  printObjects,
  readListFilter,
} from '../general/list-objects.js';
import type { ObjectKind } from '../general/list-objects.js';
import { listAllWorkloads } from './fetch-workloads.js';
import { findWorkload } from './find-workload.js';

/** How workloads are listed. */
export const WORKLOAD_KIND: ObjectKind<Workload> = {
  plural: 'workloads',
  fields: [...WorkloadSchema.fields, ...WorkloadStatusSchema.fields].map(
    ({ jsonName }) => jsonName,
  ),
  toJson: (workload) => toMessageJson(WorkloadSchema, workload),
  formatTable: (workloads, session) =>
    formatWorkloadTable(
      workloads,
      session.nowMs,
      session.style,
      session.settings.output === 'wide',
    ),
  formatManifests: (workloads) =>
    printManifests(
      workloads.map(({ namespace, name, spec = create(WorkloadSpecSchema) }) => ({
        namespace,
        name,
        spec,
      })),
    ),
};

/** Adds the options that select the workloads or nodes to list. */
export function addListOptions(command: Command): Command {
  return addOutputOptions(
    command
      .option('-A, --all-namespaces', 'include all namespaces')
      .option('-l, --selector <selector>', 'only with these labels, for example disk=ssd'),
  );
}

/** Lists the workloads of a namespace, or of all namespaces with `--all-namespaces`. */
export async function listWorkloads(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const filter = readListFilter(invocation);
  const workloads = await listAllWorkloads(session, filter);
  await printObjects(
    invocation,
    WORKLOAD_KIND,
    workloads,
    describeEmptyList(WORKLOAD_KIND.plural, filter.namespace),
  );
}

/** Shows workloads by name: in JSON or YAML, one workload as an object, several as a list. */
export async function getWorkloads(
  invocation: Invocation,
  names: readonly string[],
): Promise<void> {
  const { session } = invocation;
  const workloadNames = names.map((name) => parseWorkloadName(name, session.settings.namespace));
  const workloads: Workload[] = [];
  for (const name of workloadNames) workloads.push(await findWorkload(session, name));
  await printObjects(invocation, WORKLOAD_KIND, workloads, 'no workloads', {
    single: names.length === 1,
  });
}

/**
 * Shows the spec, the status and the newest events of one workload.
 * @param text - `[namespace/]name`.
 */
export async function describeWorkload({ session }: Invocation, text: string): Promise<void> {
  const name = parseWorkloadName(text, session.settings.namespace);
  const workload = await findWorkload(session, name);
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
  if (session.isStructured)
    await session.printValue({ workloads: workloads.map(WORKLOAD_KIND.toJson) });
  else await session.print(WORKLOAD_KIND.formatTable(workloads, session));
}
