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
import type { CommandTree, Invocation } from '../command-tree.js';
import { durationOption } from '../config/settings.js';
import { usageFailure } from '../failure.js';
import { messageJson } from '../session.js';
import type { Session } from '../session.js';
import { parsePairs } from '../spec-flags.js';
import { didYouMean } from '../suggest.js';
import { describeNodeText, nodeTable } from '../views/node-view.js';
import { waitUntilDrained } from '../wait/wait-node.js';
import { recentEvents } from './event-commands.js';
import { flagOption, operand, requireOperands, textOption } from './options.js';
import { addPlanOptions, throughPlan, type ChangeInit } from './plan-command.js';

const PAGE_SIZE = 500;

/** Adds the subcommands of `node`. */
export function addNodeCommands(tree: CommandTree, parent: Command): void {
  const nameOf = (invocation: Invocation): string => operand(invocation, 0, 'node');
  tree
    .leaf(parent, 'list', 'list nodes', listNodes)
    .alias('ls')
    .option('-l, --selector <selector>', 'only with these labels, for example disk=ssd');
  tree.leaf(parent, 'get <nodes...>', 'show nodes', (invocation) =>
    getNodes(invocation, invocation.operands),
  );
  tree.leaf(parent, 'describe <node>', 'show details of a node', (invocation) =>
    describeNode(invocation, nameOf(invocation)),
  );
  tree.leaf(parent, 'cordon <node>', 'mark a node as unschedulable', async (invocation) => {
    const { session } = invocation;
    await finish(
      session,
      await session.client.cordonNode(
        { nodeId: nameOf(invocation), requestId: session.requestId() },
        session.callOptions(),
      ),
      'cordoned',
    );
  });
  tree.leaf(
    parent,
    'uncordon <node>',
    'mark a node as schedulable and end its drain',
    async (invocation) => {
      const { session } = invocation;
      await finish(
        session,
        await session.client.uncordonNode(
          { nodeId: nameOf(invocation), requestId: session.requestId() },
          session.callOptions(),
        ),
        'uncordoned',
      );
    },
  );
  addPlanOptions(
    tree.leaf(
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
  tree.leaf(
    parent,
    'label <node> <labels...>',
    'set labels with key=value, remove labels with key-',
    labelNode,
  );
  tree.leaf(
    parent,
    'taint <node> <taints...>',
    'set taints with key=value:EFFECT, remove taints with key- or key:EFFECT-',
    taintNode,
  );
  tree.leaf(
    parent,
    'confirm-lost <node>',
    'confirm that a lost node is down, so that its replicas are replaced at once',
    async (invocation) => {
      const { session } = invocation;
      const node = await session.client.confirmNodeLost(
        { nodeId: nameOf(invocation), requestId: session.requestId() },
        session.callOptions(),
      );
      await finish(session, node, 'confirmed lost');
    },
  );
  tree
    .leaf(
      parent,
      'remove <node>',
      'remove a drained or lost node from the cluster',
      async (invocation) => {
        const { session } = invocation;
        const nodeId = nameOf(invocation);
        await session.client.removeNode(
          { nodeId, force: flagOption(invocation, 'force'), requestId: session.requestId() },
          session.callOptions(),
        );
        await session.tell(`node ${nodeId}: removed`);
      },
    )
    .option('--force', 'remove the node even if it has replicas; they count as lost');
}

/** Lists nodes. */
export async function listNodes(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const nodes = await allNodes(session, textOption(invocation, 'selector'));
  if (nodes.length === 0 && !session.structured) await session.note('no nodes');
  else await printNodes(session, nodes);
}

/** Returns all nodes, or those that match the label selector. */
export async function allNodes(session: Session, labelSelector = ''): Promise<readonly Node[]> {
  const nodes: Node[] = [];
  let pageToken = '';
  do {
    const page = await session.client.listNodes(
      { labelSelector, pageSize: PAGE_SIZE, pageToken },
      session.callOptions(),
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
    nodes.push(await session.client.getNode({ nodeId }, session.callOptions()));
  const [only] = nodes;
  if (session.structured && nodes.length === 1 && only !== undefined)
    await session.printValue(messageJson(NodeSchema, only));
  else await printNodes(session, nodes);
}

/** Shows everything about one node. */
export async function describeNode({ session }: Invocation, nodeId: string): Promise<void> {
  const node = await session.client.getNode({ nodeId }, session.callOptions());
  if (session.structured) return session.printValue(messageJson(NodeSchema, node));
  await session.print(
    describeNodeText(node, await recentEvents(session, { nodeId }), session.nowMs, session.style),
  );
}

async function drainNodes(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const text = textOption(invocation, 'deadline');
  const deadlineMs = text === undefined ? undefined : durationOption('--deadline', text);
  const terms = {
    force: flagOption(invocation, 'force'),
    ...(deadlineMs === undefined ? {} : { deadline: durationFromMs(deadlineMs) }),
  };
  const nodeIds = [...new Set(invocation.operands)];
  const drains = () => {
    requireOperands(invocation, 'nodes');
    return nodeIds.map((nodeId): ChangeInit => ({
      change: { case: 'drain', value: { nodeId, ...terms } },
    }));
  };
  if (await throughPlan(invocation, drains)) return;
  requireOperands(invocation, 'nodes');
  const begun: Node[] = [];
  for (const nodeId of nodeIds) {
    const request = {
      nodeId,
      ...terms,
      requestId: session.requestId(nodeIds.length === 1 ? undefined : nodeId),
    };
    begun.push(await session.client.drainNode(request, session.callOptions()));
    await session.tell(`node ${nodeId}: draining`);
  }
  const final = flagOption(invocation, 'wait')
    ? await waitUntilDrained(session, nodeIds, deadlineMs)
    : begun;
  if (!session.structured) return;
  const [only, ...others] = final.map((node) => messageJson(NodeSchema, node));
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
  const nodeId = operand(invocation, 0, 'node');
  await finish(
    session,
    await session.client.updateNode(
      { nodeId, setLabels, removeLabels, requestId: session.requestId() },
      session.callOptions(),
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
  const nodeId = operand(invocation, 0, 'node');
  await finish(
    session,
    await session.client.updateNode(
      { nodeId, setTaints, removeTaints, requestId: session.requestId() },
      session.callOptions(),
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
    throw usageFailure(
      `expected key=value:EFFECT to set a taint, key- or key:EFFECT- to remove it, got ${JSON.stringify(text)}`,
    );
  }
  return { key, value: value ?? '', effect: parseEffect(text, effectName) };
}

function parseEffect(text: string, name: string): Taint_Effect {
  const names = Taint_EffectSchema.values.map((value) => value.name);
  const found = Taint_EffectSchema.values.find((value) => value.name === name);
  if (found === undefined)
    throw usageFailure(
      `${text}: unknown effect, expected one of ${names.join(', ')}${didYouMean(name, names)}`,
    );
  return found.number;
}

async function finish(session: Session, node: Node, done: string): Promise<void> {
  await session.tell(`node ${node.id}: ${done}`);
  if (session.structured) await session.printValue(messageJson(NodeSchema, node));
}

async function printNodes(session: Session, nodes: readonly Node[]): Promise<void> {
  if (session.structured)
    await session.printValue({ nodes: nodes.map((node) => messageJson(NodeSchema, node)) });
  else
    await session.print(
      nodeTable(nodes, session.nowMs, session.style, session.settings.output === 'wide'),
    );
}
