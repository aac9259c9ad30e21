import type { Command } from 'commander';
import { ContainerUseSchema, NodeSchema, SilentNodeSchema } from '@cloudless/api';
import type { ContainerUse, Node, SilentNode } from '@cloudless/api';
import type { CommandTree, Invocation } from '../command-tree.js';
import { parseWorkloadName } from '../names.js';
import { count } from '../output/human.js';
import { messageJson } from '../session.js';
import {
  busiestFirst,
  nodeUseTable,
  replicaUseTable,
  sumByWorkload,
  workloadUseTable,
} from '../views/use-view.js';
import { allNodes } from './node-commands.js';
import { flagOption, textOption } from './options.js';

const PAGE_SIZE = 1_000;

/** Adds `top node`, `top workload` and `top replica`. */
export function addTopCommands(tree: CommandTree, parent: Command): void {
  addNodeTop(tree, parent, 'node').alias('nodes');
  addWorkloadTop(tree, parent, 'workload').alias('workloads').alias('wl');
  addUseOptions(
    tree.leaf(
      parent,
      'replica [workload]',
      'show resource usage of replicas, with their requests and limits',
      showReplicas,
    ),
  ).alias('replicas');
}

/** Adds the command that shows the resource usage of nodes. */
export function addNodeTop(tree: CommandTree, parent: Command, name: string): Command {
  return tree.leaf(
    parent,
    `${name} [nodes...]`,
    'show resource usage of nodes, with the resources reserved on them',
    showNodes,
  );
}

/** Adds the command that shows the resource usage of workloads. */
export function addWorkloadTop(tree: CommandTree, parent: Command, name: string): Command {
  const command = tree.leaf(
    parent,
    `${name} [workload]`,
    'show resource usage of workloads, with their requests and limits',
    showWorkloads,
  );
  return addUseOptions(command);
}

function addUseOptions(command: Command): Command {
  return command
    .option('-A, --all-namespaces', 'include all namespaces')
    .option('--node <node>', 'only replicas on this node');
}

async function showNodes(invocation: Invocation): Promise<void> {
  const { session, operands } = invocation;
  const nodes: Node[] = [];
  for (const nodeId of operands)
    nodes.push(await session.client.getNode({ nodeId }, session.callOptions()));
  if (operands.length === 0) nodes.push(...(await allNodes(session)));
  const sorted = busiestFirst(nodes, ({ id, status }) => ({
    name: id,
    cpuMillis: status?.usage?.cpuMillis,
    memoryBytes: status?.usage?.memoryBytes,
  }));
  if (session.structured)
    return session.printValue({ nodes: sorted.map((node) => messageJson(NodeSchema, node)) });
  if (sorted.length === 0) return session.note('no nodes');
  await session.print(nodeUseTable(sorted));
}

async function showWorkloads(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const { containers, silent } = await readUse(invocation);
  const sums = busiestFirst(sumByWorkload(containers), (sum) => ({
    ...sum,
    memoryBytes: sum.memoryWorkingSetBytes,
  }));
  if (session.structured) {
    const silentNodes = silent.map((node) => messageJson(SilentNodeSchema, node));
    return session.printValue({ workloads: sums.map((sum) => ({ ...sum })), silentNodes });
  }
  await session.print(workloadUseTable(sums, session.settings.output === 'wide'));
  await explainGaps(invocation, containers, silent);
}

async function showReplicas(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const { containers, silent } = await readUse(invocation);
  const sorted = busiestFirst(containers, ({ replicaId, cpuMillis, memoryWorkingSetBytes }) => ({
    name: replicaId,
    cpuMillis,
    memoryBytes: memoryWorkingSetBytes,
  }));
  if (session.structured) {
    return session.printValue({
      containers: sorted.map((use) => messageJson(ContainerUseSchema, use)),
      silentNodes: silent.map((node) => messageJson(SilentNodeSchema, node)),
    });
  }
  await session.print(replicaUseTable(sorted, session.nowMs, session.settings.output === 'wide'));
  await explainGaps(invocation, containers, silent);
}

interface Use {
  readonly containers: readonly ContainerUse[];
  readonly silent: readonly SilentNode[];
}

/** Reads all pages of the containers that the operand and the options select. */
async function readUse(invocation: Invocation): Promise<Use> {
  const { session } = invocation;
  const given = invocation.operands[0];
  const named =
    given === undefined ? undefined : parseWorkloadName(given, session.settings.namespace);
  const everywhere = flagOption(invocation, 'allNamespaces') ? '' : session.settings.namespace;
  const where = {
    namespace: named?.namespace ?? everywhere,
    name: named?.name ?? '',
    nodeId: textOption(invocation, 'node') ?? '',
  };
  const containers: ContainerUse[] = [];
  const silent = new Map<string, SilentNode>();
  let pageToken = '';
  do {
    const request = { ...where, pageSize: PAGE_SIZE, pageToken };
    const page = await session.agents.listContainerStats(request, session.callOptions());
    containers.push(...page.containers);
    for (const node of page.silentNodes) silent.set(node.nodeId, node);
    pageToken = page.nextPageToken;
  } while (pageToken !== '');
  return { containers, silent: [...silent.values()] };
}

/** Prints notes about containers and nodes that are missing in the table. */
async function explainGaps(
  { session, operands }: Invocation,
  containers: Use['containers'],
  silent: Use['silent'],
): Promise<void> {
  if (containers.length === 0 && silent.length === 0) {
    await session.note(
      `no running containers${operands[0] === undefined ? '' : ` of workload ${operands[0]}`}`,
    );
  }
  const early = containers.filter(({ cpuMillis }) => cpuMillis === undefined).length;
  if (early > 0) {
    await session.note(
      `${count(early, 'container')} without CPU usage: the first measurement takes some seconds; try again`,
    );
  }
  for (const { nodeId, reason } of silent) {
    await session.note(`node ${nodeId} did not answer, so its containers are not shown: ${reason}`);
  }
}
