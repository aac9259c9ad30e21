import type { Command } from 'commander';
import { ContainerUseSchema, NodeSchema, SilentNodeSchema } from '@cloudless/api';
import type { ContainerUse, Node, SilentNode } from '@cloudless/api';
import type { CommandTree, Invocation } from '../../command-tree.js';
import { parseWorkloadName } from '../../names.js';
import { formatCount } from '../../output/human.js';
import { toMessageJson } from '../../call/cli-session.js';
import {
  sortByUsage,
  formatNodeUsageTable,
  formatReplicaUsageTable,
  sumByWorkload,
  formatWorkloadUsageTable,
} from '../../views/usage-view.js';
import { listAllNodes } from '../node/list-nodes.js';
import { hasFlag, getTextOption } from '../options.js';

/** Largest page of containers that the API returns. */
const PAGE_SIZE = 1_000;

/** Adds `top node`, `top workload` and `top replica`. */
export function addTopCommands(tree: CommandTree, parent: Command): void {
  addNodeTopCommand(tree, parent, 'node').alias('nodes');
  addWorkloadTopCommand(tree, parent, 'workload').alias('workloads').alias('wl');
  addUsageOptions(
    tree.addCommand(
      parent,
      'replica [workload]',
      'show resource usage of replicas, with their requests and limits',
      showReplicas,
    ),
  ).alias('replicas');
}

/**
 * Adds the command that shows the resource usage of nodes.
 * @param name - `node` below `top`, `top` below `node`.
 */
export function addNodeTopCommand(tree: CommandTree, parent: Command, name: string): Command {
  return tree.addCommand(
    parent,
    `${name} [nodes...]`,
    'show resource usage of nodes, with the resources reserved on them',
    showNodes,
  );
}

/**
 * Adds the command that shows the resource usage of workloads.
 * @param name - `workload` below `top`, `top` below `workload`.
 */
export function addWorkloadTopCommand(tree: CommandTree, parent: Command, name: string): Command {
  const command = tree.addCommand(
    parent,
    `${name} [workload]`,
    'show resource usage of workloads, with their requests and limits',
    showWorkloads,
  );
  return addUsageOptions(command);
}

function addUsageOptions(command: Command): Command {
  return command
    .option('-A, --all-namespaces', 'include all namespaces')
    .option('--node <node>', 'only replicas on this node');
}

async function showNodes(invocation: Invocation): Promise<void> {
  const { session, operands } = invocation;
  const nodes: Node[] = [];
  for (const nodeId of operands)
    nodes.push(await session.client.getNode({ nodeId }, session.getCallOptions()));
  if (operands.length === 0) nodes.push(...(await listAllNodes(session)));
  const sorted = sortByUsage(nodes, ({ id, status }) => ({
    name: id,
    cpuMillis: status?.usage?.cpuMillis,
    memoryBytes: status?.usage?.memoryBytes,
  }));
  if (session.isStructured)
    return session.printValue({ nodes: sorted.map((node) => toMessageJson(NodeSchema, node)) });
  if (sorted.length === 0) return session.printNotice('no nodes');
  await session.print(formatNodeUsageTable(sorted, session.style));
}

async function showWorkloads(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const { containers, silent } = await readUsage(invocation);
  const sums = sortByUsage(sumByWorkload(containers), (sum) => ({
    ...sum,
    memoryBytes: sum.memoryWorkingSetBytes,
  }));
  if (session.isStructured) {
    const silentNodes = silent.map((node) => toMessageJson(SilentNodeSchema, node));
    return session.printValue({ workloads: sums.map((sum) => ({ ...sum })), silentNodes });
  }
  await session.print(
    formatWorkloadUsageTable(sums, session.style, session.settings.output === 'wide'),
  );
  await printGaps(invocation, containers, silent);
}

async function showReplicas(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const { containers, silent } = await readUsage(invocation);
  const sorted = sortByUsage(containers, ({ replicaId, cpuMillis, memoryWorkingSetBytes }) => ({
    name: replicaId,
    cpuMillis,
    memoryBytes: memoryWorkingSetBytes,
  }));
  if (session.isStructured) {
    return session.printValue({
      containers: sorted.map((use) => toMessageJson(ContainerUseSchema, use)),
      silentNodes: silent.map((node) => toMessageJson(SilentNodeSchema, node)),
    });
  }
  await session.print(
    formatReplicaUsageTable(
      sorted,
      session.nowMs,
      session.style,
      session.settings.output === 'wide',
    ),
  );
  await printGaps(invocation, containers, silent);
}

interface UsageList {
  readonly containers: readonly ContainerUse[];
  /** The nodes whose agent did not answer the coordinator. */
  readonly silent: readonly SilentNode[];
}

/** Reads all pages of the containers that the operand and the options select. */
async function readUsage(invocation: Invocation): Promise<UsageList> {
  const { session } = invocation;
  const nameText = invocation.operands[0];
  const workloadName =
    nameText === undefined ? undefined : parseWorkloadName(nameText, session.settings.namespace);
  const selectedNamespace = hasFlag(invocation, 'allNamespaces') ? '' : session.settings.namespace;
  const filter = {
    namespace: workloadName?.namespace ?? selectedNamespace,
    name: workloadName?.name ?? '',
    nodeId: getTextOption(invocation, 'node') ?? '',
  };
  const containers: ContainerUse[] = [];
  const silent = new Map<string, SilentNode>();
  let pageToken = '';
  do {
    const request = { ...filter, pageSize: PAGE_SIZE, pageToken };
    const page = await session.agents.listContainerStats(request, session.getCallOptions());
    containers.push(...page.containers);
    for (const node of page.silentNodes) silent.set(node.nodeId, node);
    pageToken = page.nextPageToken;
  } while (pageToken !== '');
  return { containers, silent: [...silent.values()] };
}

/** Prints notices about containers without measurements and nodes that did not answer. */
async function printGaps(
  { session, operands }: Invocation,
  containers: UsageList['containers'],
  silent: UsageList['silent'],
): Promise<void> {
  if (containers.length === 0 && silent.length === 0) {
    await session.printNotice(
      `no running containers${operands[0] === undefined ? '' : ` of workload ${operands[0]}`}`,
    );
  }
  const unmeasuredCount = containers.filter(({ cpuMillis }) => cpuMillis === undefined).length;
  if (unmeasuredCount > 0) {
    await session.printNotice(
      `${formatCount(unmeasuredCount, 'container')} without CPU usage: the first measurement takes some seconds; try again`,
    );
  }
  for (const { nodeId, reason } of silent) {
    await session.printNotice(
      `node ${nodeId} did not answer, so its containers are not shown: ${reason}`,
    );
  }
}
