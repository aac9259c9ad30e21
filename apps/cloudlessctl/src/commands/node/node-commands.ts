import type { Command } from 'commander';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import {
  NodeSchema,
  type TaintSchema,
  type Taint_Effect,
  Taint_EffectSchema,
} from '@cloudless/api';
import type { Node } from '@cloudless/api';
import type { CommandTree, Invocation } from '../../command-tree.js';
import { parseDurationOption } from '../../config/settings.js';
import { createUsageFailure } from '../../call/failure.js';
import { toMessageJson } from '../../call/cli-session.js';
import type { CliSession } from '../../call/cli-session.js';
import { parsePairs } from '../../flags/spec-flags.js';
import { suggestSimilar } from '../../suggest.js';
import { formatNodeDescription, formatNodeTable } from '../../views/node-view.js';
import { waitUntilDrained } from '../../wait/wait-node.js';
import { listRecentEvents } from '../event/event-commands.js';
import { hasFlag, requireOperand, requireOperands, getTextOption } from '../options.js';
import { addPlanOptions, handlePlanOptions, type ChangeInit } from '../plan/plan-options.js';

const PAGE_SIZE = 500;

/** Adds the subcommands of `node`. */
export function addNodeCommands(tree: CommandTree, parent: Command): void {
  const requireNodeId = (invocation: Invocation): string => requireOperand(invocation, 0, 'node');
  tree
    .addCommand(parent, 'list', 'list nodes', listNodes)
    .alias('ls')
    .option('-l, --selector <selector>', 'only with these labels, for example disk=ssd');
  tree.addCommand(parent, 'get <nodes...>', 'show nodes', (invocation) =>
    getNodes(invocation, invocation.operands),
  );
  tree.addCommand(parent, 'describe <node>', 'show details of a node', (invocation) =>
    describeNode(invocation, requireNodeId(invocation)),
  );
  tree.addCommand(parent, 'cordon <node>', 'mark a node as unschedulable', async (invocation) => {
    const { session } = invocation;
    await printChange(
      session,
      await session.client.cordonNode(
        { nodeId: requireNodeId(invocation), requestId: session.getRequestId() },
        session.getCallOptions(),
      ),
      'cordoned',
    );
  });
  tree.addCommand(
    parent,
    'uncordon <node>',
    'mark a node as schedulable and end its drain',
    async (invocation) => {
      const { session } = invocation;
      await printChange(
        session,
        await session.client.uncordonNode(
          { nodeId: requireNodeId(invocation), requestId: session.getRequestId() },
          session.getCallOptions(),
        ),
        'uncordoned',
      );
    },
  );
  addPlanOptions(
    tree.addCommand(
      parent,
      'drain [nodes...]',
      'cordon nodes and replace their replicas on other nodes',
      drainNodes,
    ),
  )
    .option(
      '--deadline <duration>',
      'time limit, such as 5m; then the drain fails or, with --force, stops the remaining replicas',
    )
    .option(
      '--force',
      'stop replicas regardless of availability: at the deadline, or at once without --deadline',
    )
    .option('--wait', 'wait until no replicas are left, at most 10m or --timeout');
  tree.addCommand(
    parent,
    'label <node> <labels...>',
    'set labels with key=value, remove labels with key-',
    labelNode,
  );
  tree.addCommand(
    parent,
    'taint <node> <taints...>',
    'set taints with key=value:EFFECT, remove taints with key- or key:EFFECT-',
    taintNode,
  );
  tree.addCommand(
    parent,
    'confirm-lost <node>',
    'confirm that a lost node is down, so that its replicas are replaced at once',
    async (invocation) => {
      const { session } = invocation;
      const node = await session.client.confirmNodeLost(
        { nodeId: requireNodeId(invocation), requestId: session.getRequestId() },
        session.getCallOptions(),
      );
      await printChange(session, node, 'confirmed lost');
    },
  );
  tree
    .addCommand(
      parent,
      'remove <node>',
      'remove a drained or lost node from the cluster',
      async (invocation) => {
        const { session } = invocation;
        const nodeId = requireNodeId(invocation);
        await session.client.removeNode(
          { nodeId, force: hasFlag(invocation, 'force'), requestId: session.getRequestId() },
          session.getCallOptions(),
        );
        await session.printStatus(`node ${nodeId}: removed`);
      },
    )
    .option('--force', 'remove the node even if it has replicas; they count as lost');
}

/** Lists nodes. */
export async function listNodes(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const nodes = await listAllNodes(session, getTextOption(invocation, 'selector'));
  if (nodes.length === 0 && !session.isStructured) await session.printNotice('no nodes');
  else await printNodes(session, nodes);
}

/** Returns all nodes, or those that match the label selector. */
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

/** Shows the named nodes. */
export async function getNodes({ session }: Invocation, names: readonly string[]): Promise<void> {
  const nodes: Node[] = [];
  for (const nodeId of names)
    nodes.push(await session.client.getNode({ nodeId }, session.getCallOptions()));
  const [only] = nodes;
  if (session.isStructured && nodes.length === 1 && only !== undefined)
    await session.printValue(toMessageJson(NodeSchema, only));
  else await printNodes(session, nodes);
}

/** Shows everything about one node. */
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

async function drainNodes(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const text = getTextOption(invocation, 'deadline');
  const deadlineMs = text === undefined ? undefined : parseDurationOption('--deadline', text);
  const drainOptions = {
    force: hasFlag(invocation, 'force'),
    ...(deadlineMs === undefined ? {} : { deadline: durationFromMs(deadlineMs) }),
  };
  const nodeIds = [...new Set(invocation.operands)];
  const createDrainChanges = () => {
    requireOperands(invocation, 'nodes');
    return nodeIds.map((nodeId): ChangeInit => ({
      change: { case: 'drain', value: { nodeId, ...drainOptions } },
    }));
  };
  if (await handlePlanOptions(invocation, createDrainChanges)) return;
  requireOperands(invocation, 'nodes');
  const draining: Node[] = [];
  for (const nodeId of nodeIds) {
    const request = {
      nodeId,
      ...drainOptions,
      requestId: session.getRequestId(nodeIds.length === 1 ? undefined : nodeId),
    };
    draining.push(await session.client.drainNode(request, session.getCallOptions()));
    await session.printStatus(`node ${nodeId}: draining`);
  }
  const final = hasFlag(invocation, 'wait')
    ? await waitUntilDrained(session, nodeIds, deadlineMs)
    : draining;
  if (!session.isStructured) return;
  const [only, ...others] = final.map((node) => toMessageJson(NodeSchema, node));
  if (only !== undefined)
    await session.printValue(others.length === 0 ? only : { nodes: [only, ...others] });
}

async function labelNode(invocation: Invocation): Promise<void> {
  const { session, operands } = invocation;
  const setLabels: Record<string, string> = {};
  const removeLabels: string[] = [];
  for (const { key, value } of parsePairs('label', operands.slice(1))) {
    if (value === undefined) removeLabels.push(key);
    else setLabels[key] = value;
  }
  const nodeId = requireOperand(invocation, 0, 'node');
  await printChange(
    session,
    await session.client.updateNode(
      { nodeId, setLabels, removeLabels, requestId: session.getRequestId() },
      session.getCallOptions(),
    ),
    'labelled',
  );
}

async function taintNode(invocation: Invocation): Promise<void> {
  const { session, operands } = invocation;
  const setTaints: MessageInitShape<typeof TaintSchema>[] = [];
  const removeTaints: string[] = [];
  for (const text of operands.slice(1)) {
    const taint = parseTaint(text);
    if (typeof taint === 'string') removeTaints.push(taint);
    else setTaints.push(taint);
  }
  const nodeId = requireOperand(invocation, 0, 'node');
  await printChange(
    session,
    await session.client.updateNode(
      { nodeId, setTaints, removeTaints, requestId: session.getRequestId() },
      session.getCallOptions(),
    ),
    'tainted',
  );
}

/**
 * Parses `key=value:EFFECT` or `key:EFFECT`, which set a taint, and `key-` or `key:EFFECT-`, which
 * remove taints. @returns The taint to set, or the text without the final hyphen.
 */
function parseTaint(text: string): MessageInitShape<typeof TaintSchema> | string {
  const match = /^([^=:]+?)(?:=([^:]*))?(?::([^:]+?))?(-?)$/.exec(text);
  const [, key = '', value, effectName, remove] = match ?? [];
  if (effectName !== undefined) parseEffect(text, effectName);
  if (remove === '-' && value === undefined)
    return effectName === undefined ? key : `${key}:${effectName}`;
  if (match === null || effectName === undefined) {
    throw createUsageFailure(
      `expected key=value:EFFECT to set a taint, key- or key:EFFECT- to remove it, got ${JSON.stringify(text)}`,
    );
  }
  return { key, value: value ?? '', effect: parseEffect(text, effectName) };
}

function parseEffect(text: string, name: string): Taint_Effect {
  const names = Taint_EffectSchema.values.map((value) => value.name);
  const found = Taint_EffectSchema.values.find((value) => value.name === name);
  if (found === undefined)
    throw createUsageFailure(
      `${text}: unknown effect, expected one of ${names.join(', ')}${suggestSimilar(name, names)}`,
    );
  return found.number;
}

async function printChange(session: CliSession, node: Node, done: string): Promise<void> {
  await session.printStatus(`node ${node.id}: ${done}`);
  if (session.isStructured) await session.printValue(toMessageJson(NodeSchema, node));
}

async function printNodes(session: CliSession, nodes: readonly Node[]): Promise<void> {
  if (session.isStructured)
    await session.printValue({ nodes: nodes.map((node) => toMessageJson(NodeSchema, node)) });
  else
    await session.print(
      formatNodeTable(nodes, session.nowMs, session.style, session.settings.output === 'wide'),
    );
}
