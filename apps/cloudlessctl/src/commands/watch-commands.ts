import {
  WatchNodesResponse_Kind as NodeKind,
  WatchNodesResponseSchema,
  WatchWorkloadsResponse_Kind as WorkloadKind,
  WatchWorkloadsResponseSchema,
} from '@cloudless/api';
import type { Node, Workload } from '@cloudless/api';
import type { Invocation } from '../command-tree.js';
import { usageFailure } from '../failure.js';
import { followWatch } from '../follow-watch.js';
import { parseWorkloadName } from '../names.js';
import { GrowingTable } from '../output/table.js';
import { messageJson } from '../session.js';
import { nodeCells, nodeHeaders } from '../views/node-view.js';
import { workloadCells, workloadHeaders } from '../views/workload-view.js';
import { flagOption, textOption } from './options.js';

/**
 * Lists the workloads, then prints a row for each change until Ctrl-C. With `-o json` each watch
 * item is a line.
 */
export async function watchWorkloads(
  invocation: Invocation,
  names: readonly string[],
): Promise<void> {
  const { session } = invocation;
  const { settings, style } = session;
  const only = onlyOne(names, 'workload');
  const named = only === undefined ? undefined : parseWorkloadName(only, settings.namespace);
  const request = {
    namespace:
      named?.namespace ?? (flagOption(invocation, 'allNamespaces') ? '' : settings.namespace),
    name: named?.name ?? '',
    labelSelector: textOption(invocation, 'selector') ?? '',
  };
  const wide = settings.output === 'wide';
  const table = new GrowingTable(workloadHeaders(wide));
  const row = (workload: Workload) => workloadCells(workload, session.nowMs, style, wide);
  await followWatch(
    session,
    {
      open: (afterRevision, options) =>
        session.client.watchWorkloads({ ...request, afterRevision }, options),
    },
    async (item) => {
      const { kind, workload } = item;
      if (workload === undefined) return;
      if (session.structured)
        return session.printItem(messageJson(WatchWorkloadsResponseSchema, item));
      await session.print(
        table.add(
          kind === WorkloadKind.DELETED
            ? [workload.namespace, workload.name, 'Deleted']
            : row(workload),
        ),
      );
    },
  );
}

/**
 * Lists the nodes, then prints a row for each change until Ctrl-C. With `-o json` each watch item
 * is a line.
 */
export async function watchNodes(invocation: Invocation, names: readonly string[]): Promise<void> {
  const { session } = invocation;
  const { settings, style } = session;
  const request = {
    nodeId: onlyOne(names, 'node') ?? '',
    labelSelector: textOption(invocation, 'selector') ?? '',
  };
  const wide = settings.output === 'wide';
  const table = new GrowingTable(nodeHeaders(wide));
  const row = (node: Node) => nodeCells(node, session.nowMs, style, wide);
  await followWatch(
    session,
    {
      open: (afterRevision, options) =>
        session.client.watchNodes({ ...request, afterRevision }, options),
    },
    async (item) => {
      const { kind, node } = item;
      if (node === undefined) return;
      if (session.structured) return session.printItem(messageJson(WatchNodesResponseSchema, item));
      await session.print(table.add(kind === NodeKind.DELETED ? [node.id, 'Deleted'] : row(node)));
    },
  );
}

function onlyOne(names: readonly string[], what: string): string | undefined {
  if (names.length > 1)
    throw usageFailure(`--watch takes at most one ${what}, got ${names.length}`);
  return names[0];
}
