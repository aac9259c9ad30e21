import type { Command } from 'commander';
import type { CommandTree } from '../../command-tree.js';
import { addRouteFlags } from '../../flags/route-flags.js';
import { addListOptions } from '../workload/list-workloads.js';
import { createRoute, deleteRoutes, updateRoute } from './change-routes.js';
import { describeRoute, getRoutes, listRoutes } from './show-routes.js';

/** Adds the subcommands of `route`. */
export function addRouteCommands(tree: CommandTree, parent: Command): void {
  addRouteFlags(
    tree.addCommand(
      parent,
      'create <name>',
      'create a route: HTTP requests from outside the cluster to services',
      createRoute,
    ),
  );
  addRouteFlags(
    tree.addCommand(
      parent,
      'update <route-name>',
      'change only the fields that the flags set',
      updateRoute,
    ),
  );
  addListOptions(tree.addCommand(parent, 'list', 'list routes', listRoutes)).alias('ls');
  tree.addCommand(parent, 'get <route-names...>', 'show routes', getRoutes);
  tree.addCommand(
    parent,
    'describe <route-name>',
    'show details of a route, its rules and conditions',
    describeRoute,
  );
  tree.addCommand(parent, 'delete <route-names...>', 'delete routes', deleteRoutes);
}
