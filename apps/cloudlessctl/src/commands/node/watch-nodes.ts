import { WatchNodesResponse_Kind as NodeKind, WatchNodesResponseSchema } from '@cloudless/api';
import type { Node } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { followWatch } from '../../call/resume-watch.js';
import { toMessageJson } from '../../call/cli-session.js';
import { toNodeCells, getNodeColumns } from '../../views/node-view.js';
import { readFieldFilter } from '../general/list-objects.js';
import { WatchTable } from '../general/watch-table.js';
import { getTextOption, requireAtMostOneName } from '../options.js';
import { NODE_KIND } from './list-nodes.js';

/**
 * Lists the nodes, then prints a row for each change until Ctrl-C. With `-o json`, each watch item
 * is one line of JSON.
 * @param names - At most one name, which restricts the watch to this node.
 */
export async function watchNodes(invocation: Invocation, names: readonly string[]): Promise<void> {
  const { session } = invocation;
  const { settings, style } = session;
  const request = {
    nodeId: requireAtMostOneName(names, 'node') ?? '',
    labelSelector: getTextOption(invocation, 'selector') ?? '',
  };
  const wide = settings.output === 'wide';
  const table = new WatchTable(session, getNodeColumns(wide));
  const filter = readFieldFilter(invocation, NODE_KIND);
  const shown = new Set<string>();
  const toRow = (node: Node) => toNodeCells(node, session.nowMs, style, wide);
  await followWatch(
    session,
    {
      open: (afterRevision, options) =>
        session.client.watchNodes({ ...request, afterRevision }, options),
      onRestart: () => table.restart(),
    },
    async (item) => {
      const { kind, node } = item;
      if (node === undefined) return table.flush();
      const key = node.id;
      // With a filter, an object that no longer matches is gone, and one that never matched is not
      // mentioned.
      const isDeleted = kind === NodeKind.DELETED || filter?.(NODE_KIND.toJson(node)) === false;
      if (isDeleted && filter !== undefined && !shown.has(key)) return;
      if (isDeleted) shown.delete(key);
      else shown.add(key);
      if (session.isStructured)
        return session.printItem(
          session.printsEnvelopes
            ? toMessageJson(
                WatchNodesResponseSchema,
                isDeleted ? { ...item, kind: NodeKind.DELETED } : item,
              )
            : NODE_KIND.toJson(node),
        );
      await table.add(key, isDeleted ? [node.id, 'Deleted'] : toRow(node));
    },
    () => table.flush(),
  );
}
