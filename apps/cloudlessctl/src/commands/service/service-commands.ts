import type { Command } from 'commander';
import type { CommandTree } from '../../command-tree.js';
import { addServiceFlags } from '../../flags/service-flags.js';
import { addOutputOptions } from '../general/list-objects.js';
import { addListOptions } from '../workload/list-workloads.js';
import { createService, deleteServices, updateService } from './change-services.js';
import {
  describeService,
  getServices,
  listEndpoints,
  listServices,
  resolveService,
} from './show-services.js';
import { traceService } from './trace-service.js';

/** Adds the subcommands of `service`. */
export function addServiceCommands(tree: CommandTree, parent: Command): void {
  addServiceFlags(
    tree.addCommand(
      parent,
      'create <name>',
      'create a service: a stable name and address for replicas',
      createService,
    ),
  );
  addServiceFlags(
    tree.addCommand(
      parent,
      'update <service-name>',
      'change only the fields that the flags set',
      updateService,
    ),
  );
  addServiceLists(tree, parent);
  tree.addCommand(
    parent,
    'describe <service-name>',
    'show details of a service, its conditions and endpoints',
    describeService,
  );
  tree
    .addCommand(
      parent,
      'resolve <service-name>',
      'show the address of a service and its ready endpoints, nearest first',
      resolveService,
    )
    .option('--from-zone <zone>', 'zone of the caller (default: none is nearer than another)');
  tree.addCommand(
    parent,
    'delete <service-names...>',
    'delete services; their addresses stay reserved for one hour',
    deleteServices,
  );
}

/** Adds the subcommands of `network`. */
export function addNetworkCommands(tree: CommandTree, parent: Command): void {
  addServiceLists(tree, tree.addGroup(parent, 'service', 'show services'));
  const endpoint = tree.addGroup(parent, 'endpoint', 'show the endpoints of services');
  addOutputOptions(
    tree
      .addCommand(endpoint, 'list <service-name>', 'list the endpoints of a service', listEndpoints)
      .alias('ls'),
  );
  tree.addCommand(
    parent,
    'trace <from> <service-name>',
    'show each step from a node or workload to a service, and why a step would fail',
    traceService,
  );
}

function addServiceLists(tree: CommandTree, parent: Command): void {
  addListOptions(tree.addCommand(parent, 'list', 'list services', listServices)).alias('ls');
  tree.addCommand(parent, 'get <service-names...>', 'show services', getServices);
}
