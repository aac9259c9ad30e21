import { NodeSchema } from '@cloudless/api';
import type { Node } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { toMessageJson } from '../../call/cli-session.js';
import { createUsageFailure } from '../../call/failure.js';
import { changeEach } from '../change-each.js';
import { hasFlag } from '../options.js';
import { handleChangeOptions } from '../plan/plan-options.js';
import type { ChangeInit } from '../plan/predict-changes.js';
import { findRebalanceHint } from './rebalance-hint.js';

/** Cordons nodes: they accept no new replicas. */
export async function cordonNodes(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  await changeNodes(invocation, getNodeIds(invocation), {
    plan: (nodeId) => ({ case: 'cordon', value: { nodeId } }),
    call: (request) => session.client.cordonNode(request, session.getCallOptions()),
    change: 'cordoned',
  });
}

/** Ends the cordons and the drains of nodes. */
export async function uncordonNodes(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  await changeNodes(invocation, getNodeIds(invocation), {
    plan: (nodeId) => ({ case: 'uncordon', value: { nodeId } }),
    call: (request) => session.client.uncordonNode(request, session.getCallOptions()),
    change: 'uncordoned',
    findHint: (node) => findRebalanceHint(session, node),
  });
}

/** Confirms that the machine of a lost node is down, so that its replicas are replaced at once. */
export async function confirmNodeLost(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  await changeNodes(invocation, getNodeIds(invocation), {
    plan: (nodeId) => ({ case: 'confirmNodeLost', value: { nodeId } }),
    call: (request) => session.client.confirmNodeLost(request, session.getCallOptions()),
    change: 'confirmed lost',
  });
}

/** Removes drained or lost nodes, or with `--force` any nodes. */
export async function removeNodes(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const force = hasFlag(invocation, 'force');
  const nodeIds = getNodeIds(invocation);
  const createChanges = () =>
    nodeIds.map((nodeId) => ({
      change: { case: 'removeNode' as const, value: { nodeId, force } },
    }));
  if (await handleChangeOptions(invocation, createChanges, { isForced: force })) return;
  const removed = await changeEach(session, nodeIds, {
    describe: describeNode,
    change: async (nodeId, requestId) => {
      await session.client.removeNode({ nodeId, requestId, force }, session.getCallOptions());
      await session.printStatus(`${describeNode(nodeId)}: removed`);
    },
  });
  removed.throwFailure();
}

/** The change that {@link changeNodes} makes. */
export interface NodeChange {
  /** Returns the change of one node for its prediction. */
  plan(nodeId: string): NonNullable<ChangeInit['change']>;
  /** Makes the change with one call. */
  call(request: { readonly nodeId: string; readonly requestId: string }): Promise<Node>;
  /** The change for the status line, for example `cordoned`. */
  readonly change: string;
  /** Returns a hint to print after the status line, or undefined. Not called for JSON or YAML. */
  findHint?(node: Node): Promise<string | undefined>;
}

/**
 * Makes the same change of one or several nodes, after {@link handleChangeOptions}, and prints a
 * status line for each. In JSON or YAML, one node is printed as an object, several nodes as a list.
 * @throws {@link CliFailure} with the exit code of the first change that failed, after all others.
 */
export async function changeNodes(
  invocation: Invocation,
  nodeIds: readonly string[],
  { plan, call, change, findHint }: NodeChange,
): Promise<void> {
  const { session } = invocation;
  const createChanges = () => nodeIds.map((nodeId) => ({ change: plan(nodeId) }));
  if (await handleChangeOptions(invocation, createChanges)) return;
  const changed = await changeEach(session, nodeIds, {
    describe: describeNode,
    change: async (nodeId, requestId) => {
      const node = await call({ nodeId, requestId });
      await session.printStatus(`${describeNode(node.id)}: ${change}`);
      const hint = session.isStructured ? undefined : await findHint?.(node);
      if (hint !== undefined) await session.printNotice(hint);
      return node;
    },
  });
  if (session.isStructured) {
    const nodes = changed.results.map((node) => toMessageJson(NodeSchema, node));
    const [only] = nodes;
    await session.printValue(nodeIds.length === 1 && only !== undefined ? only : { nodes });
  }
  changed.throwFailure();
}

const describeNode = (nodeId: string): string => `node ${nodeId}`;

/**
 * Returns the nodes that a command was given, each once.
 * @throws {@link CliFailure} when there is none.
 */
export function getNodeIds({ operands }: Pick<Invocation, 'operands'>): readonly string[] {
  if (operands.length === 0)
    throw createUsageFailure("missing required argument 'nodes': only a command may follow --");
  return [...new Set(operands)];
}
