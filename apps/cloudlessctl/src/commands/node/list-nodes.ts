import { NodeSchema, NodeStatusSchema } from '@cloudless/api';
import type { Node } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { toMessageJson } from '../../call/cli-session.js';
import type { CliSession } from '../../call/cli-session.js';
import { formatNodeTable } from '../../views/node-view.js';
import { printObjects } from '../general/list-objects.js';
import type { ObjectKind } from '../general/list-objects.js';
import { getTextOption } from '../options.js';
import { findNode } from './find-node.js';

/** Nodes of one page. The API allows 1000; smaller pages keep each response small. */
const PAGE_SIZE = 500;

/** How nodes are listed. */
export const NODE_KIND: ObjectKind<Node> = {
  plural: 'nodes',
  fields: [...NodeSchema.fields, ...NodeStatusSchema.fields].map(({ jsonName }) => jsonName),
  toJson: (node) => toMessageJson(NodeSchema, node),
  formatTable: (nodes, session) =>
    formatNodeTable(nodes, session.nowMs, session.style, session.settings.output === 'wide'),
};

/** Lists all nodes, or the nodes that match `--selector`. */
export async function listNodes(invocation: Invocation): Promise<void> {
  const nodes = await listAllNodes(invocation.session, getTextOption(invocation, 'selector'));
  await printObjects(invocation, NODE_KIND, nodes, 'no nodes');
}

/**
 * Returns all nodes that match a label selector.
 * @param labelSelector - Empty: every node.
 */
export async function listAllNodes(
  session: CliSession,
  labelSelector = '',
): Promise<readonly Node[]> {
  const nodes: Node[] = [];
  let pageToken = '';
  do {
    const page = await session.client.listNodes(
      { labelSelector, pageSize: PAGE_SIZE, pageToken },
      session.getCallOptions(),
    );
    nodes.push(...page.nodes);
    pageToken = page.nextPageToken;
  } while (pageToken !== '');
  return nodes;
}

/** Shows nodes by name: in JSON or YAML, one node as an object, several nodes as a list. */
export async function getNodes(invocation: Invocation, names: readonly string[]): Promise<void> {
  const nodes: Node[] = [];
  for (const nodeId of names) nodes.push(await findNode(invocation.session, nodeId));
  await printObjects(invocation, NODE_KIND, nodes, 'no nodes', { single: names.length === 1 });
}
