import type { Command } from 'commander';
import type { CommandTree, Invocation } from '../../command-tree.js';
import { hasFlag, requireOperand } from '../options.js';
import { addPlanOptions } from '../plan/plan-options.js';
import { listNodes, getNodes, describeNode } from './list-nodes.js';
import { drainNodes } from './drain-nodes.js';
import { labelNode, taintNode, printChange } from './label-node.js';

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
