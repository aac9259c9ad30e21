import type { Command } from 'commander';
import type { CommandTree } from '../../command-tree.js';
import { requireOperand } from '../options.js';
import { addChangeOptions, addPlanOptions } from '../plan/plan-options.js';
import { addNodeTopCommand } from '../top/top-commands.js';
import { addOutputOptions } from '../general/list-objects.js';
import { banNodes, listBans, unbanNodes } from './ban-nodes.js';
import { confirmNodeLost, cordonNodes, removeNodes, uncordonNodes } from './change-node.js';
import { drainNodes } from './drain-nodes.js';
import { describeNode } from './describe-node.js';
import { addJoinCommand } from './join-command.js';
import { labelNodes, taintNodes } from './label-node.js';
import { getNodes, listNodes } from './list-nodes.js';

/** Adds the subcommands of `node`. */
export function addNodeCommands(tree: CommandTree, parent: Command): void {
  addOutputOptions(
    tree
      .addCommand(parent, 'list', 'list nodes', listNodes)
      .alias('ls')
      .option('-l, --selector <selector>', 'only with these labels, for example disk=ssd'),
  );
  tree.addCommand(parent, 'get <nodes...>', 'show nodes', (invocation) =>
    getNodes(invocation, invocation.operands),
  );
  tree.addCommand(parent, 'describe <node>', 'show details of a node', (invocation) =>
    describeNode(invocation, requireOperand(invocation, 0, 'node')),
  );
  addSchedulingCommands(tree, parent);
  addChangeOptions(
    tree.addCommand(
      parent,
      'label <nodes...>',
      'set labels of nodes with key=value, remove labels with key-',
      labelNodes,
    ),
  ).usage('[options] <nodes...> <labels...>');
  addChangeOptions(
    tree.addCommand(
      parent,
      'taint <nodes...>',
      'set taints of nodes with key=value:EFFECT, remove taints with key- or key:EFFECT-',
      taintNodes,
    ),
  ).usage('[options] <nodes...> <taints...>');
  addChangeOptions(
    tree.addCommand(
      parent,
      'confirm-lost <node>',
      'confirm that a lost node is down, so that its replicas are replaced at once',
      confirmNodeLost,
    ),
  );
  addChangeOptions(
    tree.addCommand(
      parent,
      'remove <nodes...>',
      'remove drained or lost nodes from the cluster',
      removeNodes,
    ),
  ).option('--force', 'remove nodes even if they have replicas, which then count as lost');
  addIdentityCommands(tree, parent);
  addNodeTopCommand(tree, parent, 'top');
}

/** Adds `join-command`, `ban`, `unban` and `bans`. */
function addIdentityCommands(tree: CommandTree, parent: Command): void {
  addJoinCommand(tree, parent);
  tree
    .addCommand(
      parent,
      'ban <nodes...>',
      'refuse the certificates of nodes and end their connections',
      banNodes,
    )
    .option('--reason <text>', 'why the nodes are banned')
    .option('--removed', 'ban also nodes that were removed from the cluster already');
  tree.addCommand(
    parent,
    'unban <nodes...>',
    'remove the bans of nodes, so that the machines may join again',
    unbanNodes,
  );
  addOutputOptions(tree.addCommand(parent, 'bans', 'list banned nodes', listBans));
}

/** Adds `cordon`, `uncordon` and `drain`. */
function addSchedulingCommands(tree: CommandTree, parent: Command): void {
  addChangeOptions(
    tree.addCommand(parent, 'cordon <nodes...>', 'mark nodes as unschedulable', cordonNodes),
  );
  addChangeOptions(
    tree.addCommand(
      parent,
      'uncordon <nodes...>',
      'mark nodes as schedulable and end their drains',
      uncordonNodes,
    ),
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
