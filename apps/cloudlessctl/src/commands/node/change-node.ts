import { NodeSchema } from '@cloudless/api';
import type { Node } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { toMessageJson } from '../../call/cli-session.js';
import type { CliSession } from '../../call/cli-session.js';
import { hasFlag, requireOperand } from '../options.js';

/** Cordons a node: the node accepts no new replicas. */
export async function cordonNode(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const node = await session.client.cordonNode(
    createNodeRequest(invocation),
    session.getCallOptions(),
  );
  await printNodeChange(session, node, 'cordoned');
}

/** Ends the cordon and the drain of a node. */
export async function uncordonNode(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const node = await session.client.uncordonNode(
    createNodeRequest(invocation),
    session.getCallOptions(),
  );
  await printNodeChange(session, node, 'uncordoned');
}

/** Confirms that the machine of a lost node is down, so that its replicas are replaced at once. */
export async function confirmNodeLost(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const node = await session.client.confirmNodeLost(
    createNodeRequest(invocation),
    session.getCallOptions(),
  );
  await printNodeChange(session, node, 'confirmed lost');
}

/** Removes a drained or lost node, or with `--force` any node. */
export async function removeNode(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const request = createNodeRequest(invocation);
  await session.client.removeNode(
    { ...request, force: hasFlag(invocation, 'force') },
    session.getCallOptions(),
  );
  await session.printStatus(`node ${request.nodeId}: removed`);
}

/**
 * Prints the status line `node <id>: <change>`, and the node with JSON or YAML output.
 * @param change - The completed change, for example `cordoned`.
 */
export async function printNodeChange(
  session: CliSession,
  node: Node,
  change: string,
): Promise<void> {
  await session.printStatus(`node ${node.id}: ${change}`);
  if (session.isStructured) await session.printValue(toMessageJson(NodeSchema, node));
}

function createNodeRequest(invocation: Invocation): {
  readonly nodeId: string;
  readonly requestId: string;
} {
  const nodeId = requireOperand(invocation, 0, 'node');
  return { nodeId, requestId: invocation.session.getRequestId() };
}
