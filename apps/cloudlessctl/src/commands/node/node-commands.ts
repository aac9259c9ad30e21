import type { Command } from 'commander';
import type { CommandTree } from '../../command-tree.js';
import { requireOperand } from '../options.js';
import { addPlanOptions } from '../plan/plan-options.js';
import { addNodeTopCommand } from '../top/top-commands.js';
import { confirmNodeLost, cordonNode, removeNode, uncordonNode } from './change-node.js';
import { drainNodes } from './drain-nodes.js';
import { labelNode, taintNode } from './label-node.js';
import { describeNode, getNodes, listNodes } from './list-nodes.js';

/** Adds the subcommands of `node`. */
export function addNodeCommands(tree: CommandTree, parent: Command): void {
  tree
    .addCommand(parent, 'list', 'list nodes', listNodes)
    .alias('ls')
    .option('-l, --selector <selector>', 'only with these labels, for example disk=ssd');
  tree.addCommand(parent, 'get <nodes...>', 'show nodes', (invocation) =>
    getNodes(invocation, invocation.operands),
  );
  tree.addCommand(parent, 'describe <node>', 'show details of a node', (invocation) =>
    describeNode(invocation, requireOperand(invocation, 0, 'node')),
  );
  addSchedulingCommands(tree, parent);
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
    confirmNodeLost,
  );
  tree
    .addCommand(
      parent,
      'remove <node>',
      'remove a drained or lost node from the cluster',
      removeNode,
    )
    .option('--force', 'remove the node even if it has replicas; they count as lost');
  addNodeTopCommand(tree, parent, 'top');
}

/** Adds `cordon`, `uncordon` and `drain`. */
function addSchedulingCommands(tree: CommandTree, parent: Command): void {
  tree.addCommand(parent, 'cordon <node>', 'mark a node as unschedulable', cordonNode);
  tree.addCommand(
    parent,
    'uncordon <node>',
    'mark a node as schedulable and end its drain',
    uncordonNode,
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
}
