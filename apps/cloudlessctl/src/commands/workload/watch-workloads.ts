import {
  WatchWorkloadsResponse_Kind as WorkloadKind,
  WatchWorkloadsResponseSchema,
} from '@cloudless/api';
import type { Workload } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { followWatch } from '../../call/resume-watch.js';
import { parseWorkloadName } from '../../names.js';
import { GrowingTable } from '../../output/table.js';
import { toMessageJson } from '../../call/cli-session.js';
import { toWorkloadCells, getWorkloadHeaders } from '../../views/workload-view.js';
import { hasFlag, getTextOption, requireAtMostOneName } from '../options.js';

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
  const only = requireAtMostOneName(names, 'workload');
  const named = only === undefined ? undefined : parseWorkloadName(only, settings.namespace);
  const request = {
    namespace: named?.namespace ?? (hasFlag(invocation, 'allNamespaces') ? '' : settings.namespace),
    name: named?.name ?? '',
    labelSelector: getTextOption(invocation, 'selector') ?? '',
  };
  const wide = settings.output === 'wide';
  const table = new GrowingTable(getWorkloadHeaders(wide));
  const toRow = (workload: Workload) => toWorkloadCells(workload, session.nowMs, style, wide);
  await followWatch(
    session,
    {
      open: (afterRevision, options) =>
        session.client.watchWorkloads({ ...request, afterRevision }, options),
    },
    async (item) => {
      const { kind, workload } = item;
      if (workload === undefined) return;
      if (session.isStructured)
        return session.printItem(toMessageJson(WatchWorkloadsResponseSchema, item));
      await session.print(
        table.add(
          kind === WorkloadKind.DELETED
            ? [workload.namespace, workload.name, 'Deleted']
            : toRow(workload),
        ),
      );
    },
  );
}
