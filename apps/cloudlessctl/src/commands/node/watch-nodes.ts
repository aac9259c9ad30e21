import { WatchNodesResponse_Kind as NodeKind, WatchNodesResponseSchema } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { toMessageJson } from '../../call/cli-session.js';
import { toNodeCells, getNodeColumns } from '../../views/node-view.js';
import { readFieldFilter } from '../general/list-objects.js';
import { watchObjects } from '../general/watch-objects.js';
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
  await watchObjects(session, {
    kind: NODE_KIND,
    filter: readFieldFilter(invocation, NODE_KIND),
    columns: getNodeColumns(wide),
    open: (afterRevision, options) =>
      session.client.watchNodes({ ...request, afterRevision }, options),
    getObject: ({ node }) => node,
    isDeletion: ({ kind }) => kind === NodeKind.DELETED,
    toEnvelope: (item, isDeleted) =>
      toMessageJson(
        WatchNodesResponseSchema,
        isDeleted ? { ...item, kind: NodeKind.DELETED } : item,
      ),
    getName: ({ id }) => [id],
    toRow: (node) => toNodeCells(node, session.nowMs, style, wide),
  });
}
