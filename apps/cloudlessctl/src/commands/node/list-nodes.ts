import { NodeSchema } from '@cloudless/api';
import type { Node } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { toMessageJson } from '../../call/cli-session.js';
import type { CliSession } from '../../call/cli-session.js';
import { formatNodeDescription } from '../../views/node-description.js';
import { formatNodeTable } from '../../views/node-view.js';
import { listRecentEvents } from '../event/event-commands.js';
import { getTextOption } from '../options.js';

/** Nodes of one page. The API allows 1000; smaller pages keep each response small. */
const PAGE_SIZE = 500;

/** Lists all nodes, or the nodes that match `--selector`. */
export async function listNodes(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const nodes = await listAllNodes(session, getTextOption(invocation, 'selector'));
  if (nodes.length === 0 && !session.isStructured) await session.printNotice('no nodes');
  else await printNodes(session, nodes);
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
export async function getNodes({ session }: Invocation, names: readonly string[]): Promise<void> {
  const nodes: Node[] = [];
  for (const nodeId of names)
    nodes.push(await session.client.getNode({ nodeId }, session.getCallOptions()));
  const [only] = nodes;
  if (session.isStructured && nodes.length === 1 && only !== undefined)
    await session.printValue(toMessageJson(NodeSchema, only));
  else await printNodes(session, nodes);
}

/** Shows the properties, the status and the newest events of one node. */
export async function describeNode({ session }: Invocation, nodeId: string): Promise<void> {
  const node = await session.client.getNode({ nodeId }, session.getCallOptions());
  if (session.isStructured) return session.printValue(toMessageJson(NodeSchema, node));
  await session.print(
    formatNodeDescription(
      node,
      await listRecentEvents(session, { nodeId }),
      session.nowMs,
      session.style,
    ),
  );
}

async function printNodes(session: CliSession, nodes: readonly Node[]): Promise<void> {
  if (session.isStructured)
    await session.printValue({ nodes: nodes.map((node) => toMessageJson(NodeSchema, node)) });
  else
    await session.print(
      formatNodeTable(nodes, session.nowMs, session.style, session.settings.output === 'wide'),
    );
}
