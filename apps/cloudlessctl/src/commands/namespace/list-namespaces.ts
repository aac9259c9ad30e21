import type { Invocation } from '../../command-tree.js';
import { CliFailure, ExitCode } from '../../call/failure.js';
import { suggestSimilar } from '../../suggest.js';
import { formatTable } from '../../output/table.js';
import { printObjects } from '../general/list-objects.js';
import type { ObjectKind } from '../general/list-objects.js';
import { getTextOption } from '../options.js';
import { listAllWorkloads } from '../workload/fetch-workloads.js';

/** A namespace that has a workload, with the sums over its workloads. */
interface NamespaceSummary {
  readonly name: string;
  readonly workloads: number;
  readonly desiredReplicas: number;
  readonly readyReplicas: number;
}

const NAMESPACE_KIND: ObjectKind<NamespaceSummary> = {
  plural: 'namespaces',
  fields: ['name', 'workloads', 'desiredReplicas', 'readyReplicas'],
  toJson: (namespace) => ({ ...namespace }),
  formatTable: (namespaces, { style }) =>
    formatTable(
      ['NAME', 'WORKLOADS', 'READY'],
      namespaces.map(({ name, workloads, desiredReplicas, readyReplicas }) => [
        name,
        String(workloads),
        `${readyReplicas}/${desiredReplicas}`,
      ]),
      style,
    ),
};

/**
 * Lists the namespaces that have a workload: a namespace exists as long as it has one.
 * @param names - Names of namespaces; empty: all.
 */
export async function listNamespaces(
  invocation: Invocation,
  names: readonly string[],
): Promise<void> {
  const { session } = invocation;
  const labelSelector = getTextOption(invocation, 'selector') ?? '';
  const byName = new Map<string, NamespaceSummary>();
  for (const { namespace, status } of await listAllWorkloads(session, { labelSelector })) {
    const sum = byName.get(namespace);
    byName.set(namespace, {
      name: namespace,
      workloads: (sum?.workloads ?? 0) + 1,
      desiredReplicas: (sum?.desiredReplicas ?? 0) + (status?.desiredReplicas ?? 0),
      readyReplicas: (sum?.readyReplicas ?? 0) + (status?.readyReplicas ?? 0),
    });
  }
  const all = [...byName.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
  const shown = names.map((name) => {
    const found = byName.get(name);
    if (found === undefined)
      throw new CliFailure(
        ExitCode.notFound,
        `namespace ${name} has no workload${suggestSimilar(name, byName.keys())}`,
      );
    return found;
  });
  await printObjects(
    invocation,
    NAMESPACE_KIND,
    names.length === 0 ? all : shown,
    'no namespace has a workload',
    { single: names.length === 1 },
  );
}
