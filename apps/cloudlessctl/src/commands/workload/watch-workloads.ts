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
import { toWorkloadCells, getWorkloadColumns } from '../../views/workload-view.js';
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
  const table = new GrowingTable(getWorkloadColumns(wide), style, { wide });
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
