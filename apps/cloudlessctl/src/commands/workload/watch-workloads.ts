import {
  WatchWorkloadsResponse_Kind as WorkloadKind,
  WatchWorkloadsResponseSchema,
} from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { parseWorkloadName } from '../../names.js';
import { toMessageJson } from '../../call/cli-session.js';
import { toWorkloadCells, getWorkloadColumns } from '../../views/workload-view.js';
import { readFieldFilter } from '../general/list-objects.js';
import { watchObjects } from '../general/watch-objects.js';
import { hasFlag, getTextOption, requireAtMostOneName } from '../options.js';
import { WORKLOAD_KIND } from './list-workloads.js';

/**
 * Lists the workloads, then prints a row for each change until Ctrl-C. With `-o json`, each watch
 * item is one line of JSON.
 * @param names - At most one name, which restricts the watch to this workload.
 */
export async function watchWorkloads(
  invocation: Invocation,
  names: readonly string[],
): Promise<void> {
  const { session } = invocation;
  const { settings, style } = session;
  const nameText = requireAtMostOneName(names, 'workload');
  const workloadName =
    nameText === undefined ? undefined : parseWorkloadName(nameText, settings.namespace);
  const request = {
    namespace:
      workloadName?.namespace ?? (hasFlag(invocation, 'allNamespaces') ? '' : settings.namespace),
    name: workloadName?.name ?? '',
    labelSelector: getTextOption(invocation, 'selector') ?? '',
  };
  const wide = settings.output === 'wide';
  const filter = readFieldFilter(invocation, WORKLOAD_KIND);
  // A table shows numbers of replicas only; JSON and filters show the whole item.
  const omitReplicas = !session.isStructured && filter === undefined;
  await watchObjects(session, {
    kind: WORKLOAD_KIND,
    filter,
    columns: getWorkloadColumns(wide),
    open: (afterRevision, options) =>
      session.client.watchWorkloads({ ...request, omitReplicas, afterRevision }, options),
    getObject: ({ workload }) => workload,
    isDeletion: ({ kind }) => kind === WorkloadKind.DELETED,
    toEnvelope: (item, isDeleted) =>
      toMessageJson(
        WatchWorkloadsResponseSchema,
        isDeleted ? { ...item, kind: WorkloadKind.DELETED } : item,
      ),
    getName: ({ namespace, name }) => [namespace, name],
    toRow: (workload) => toWorkloadCells(workload, session.nowMs, style, wide),
  });
}
