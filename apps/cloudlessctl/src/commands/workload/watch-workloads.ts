import {
  WatchWorkloadsResponse_Kind as WorkloadKind,
  WatchWorkloadsResponseSchema,
} from '@cloudless/api';
import type { Workload } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { followWatch } from '../../call/resume-watch.js';
import { parseWorkloadName } from '../../names.js';
import { toMessageJson } from '../../call/cli-session.js';
import { toWorkloadCells, getWorkloadColumns } from '../../views/workload-view.js';
import { readFieldFilter } from '../general/list-objects.js';
import { WatchTable } from '../general/watch-table.js';
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
  const table = new WatchTable(session, getWorkloadColumns(wide));
  const filter = readFieldFilter(invocation, WORKLOAD_KIND);
  // A table shows numbers of replicas only; JSON and filters show the whole item.
  const omitReplicas = !session.isStructured && filter === undefined;
  const shown = new Set<string>();
  const toRow = (workload: Workload) => toWorkloadCells(workload, session.nowMs, style, wide);
  await followWatch(
    session,
    {
      open: (afterRevision, options) =>
        session.client.watchWorkloads({ ...request, omitReplicas, afterRevision }, options),
      onRestart: () => table.restart(),
    },
    async (item) => {
      const { kind, workload } = item;
      if (workload === undefined) return table.flush();
      const key = `${workload.namespace}/${workload.name}`;
      // With a filter, an object that no longer matches is gone, and one that never matched is not
      // mentioned.
      const isDeleted =
        kind === WorkloadKind.DELETED || filter?.(WORKLOAD_KIND.toJson(workload)) === false;
      if (isDeleted && filter !== undefined && !shown.has(key)) return;
      if (isDeleted) shown.delete(key);
      else shown.add(key);
      if (session.isStructured)
        return session.printItem(
          session.printsEnvelopes
            ? toMessageJson(
                WatchWorkloadsResponseSchema,
                isDeleted ? { ...item, kind: WorkloadKind.DELETED } : item,
              )
            : WORKLOAD_KIND.toJson(workload),
        );
      await table.add(
        key,
        isDeleted ? [workload.namespace, workload.name, 'Deleted'] : toRow(workload),
      );
    },
    () => table.flush(),
  );
}
