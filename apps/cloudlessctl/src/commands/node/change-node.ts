import { NodeSchema } from '@cloudless/api';
import type { Node } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { toMessageJson } from '../../call/cli-session.js';
import type { CliSession } from '../../call/cli-session.js';
import { hasFlag, requireOperand } from '../options.js';

/** Marks a node as unschedulable. */
export async function cordonNode(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const node = await session.client.cordonNode(
    createNodeRequest(invocation),
    session.getCallOptions(),
  );
  await printChange(session, node, 'cordoned');
}

/** Marks a node as schedulable and ends its drain. */
export async function uncordonNode(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const node = await session.client.uncordonNode(
    createNodeRequest(invocation),
    session.getCallOptions(),
  );
  await printChange(session, node, 'uncordoned');
}

/** Confirms that a lost node is down. */
export async function confirmNodeLost(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const node = await session.client.confirmNodeLost(
    createNodeRequest(invocation),
    session.getCallOptions(),
  );
  await printChange(session, node, 'confirmed lost');
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

/** Prints what was done to a node. */
export async function printChange(session: CliSession, node: Node, done: string): Promise<void> {
  await session.printStatus(`node ${node.id}: ${done}`);
  if (session.isStructured) await session.printValue(toMessageJson(NodeSchema, node));
}

function createNodeRequest(invocation: Invocation): {
  readonly nodeId: string;
  readonly requestId: string;
} {
  const nodeId = requireOperand(invocation, 0, 'node');
  return { nodeId, requestId: invocation.session.getRequestId() };
}
