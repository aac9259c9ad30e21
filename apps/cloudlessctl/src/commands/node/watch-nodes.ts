import { WatchNodesResponse_Kind as NodeKind, WatchNodesResponseSchema } from '@cloudless/api';
import type { Node } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { followWatch } from '../../call/resume-watch.js';
import { GrowingTable } from '../../output/table.js';
import { toMessageJson } from '../../call/cli-session.js';
import { toNodeCells, getNodeColumns } from '../../views/node-view.js';
import { getTextOption, requireAtMostOneName } from '../options.js';

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
  const table = new GrowingTable(getNodeColumns(wide), style, { wide });
  const toRow = (node: Node) => toNodeCells(node, session.nowMs, style, wide);
  await followWatch(
    session,
    {
      open: (afterRevision, options) =>
        session.client.watchNodes({ ...request, afterRevision }, options),
    },
    async (item) => {
      const { kind, node } = item;
      if (node === undefined) return;
      if (session.isStructured)
        return session.printItem(toMessageJson(WatchNodesResponseSchema, item));
      await session.print(
        table.add(kind === NodeKind.DELETED ? [node.id, 'Deleted'] : toRow(node)),
      );
    },
  );
}
