import type { Command } from 'commander';
import type { AddCommands, CommandTree } from './command-tree.js';

/**
 * Name, description and module of a top-level command. The module is imported only when the command
 * is selected, so that a command starts without the code of the others.
 */
type Declaration = readonly [name: string, description: string, load: () => Promise<AddCommands>];

/** The groups of subcommands. */
const GROUPS: readonly Declaration[] = [
  [
    'workload',
    'create, show, change and delete workloads',
    async () => (await import('./commands/workload/workload-commands.js')).addWorkloadCommands,
  ],
  [
    'rollout',
    'show, pause, resume, promote and undo rollouts',
    async () => (await import('./commands/rollout/rollout-commands.js')).addRolloutCommands,
  ],
  [
    'service',
    'create, show, change and delete services',
    async () => (await import('./commands/service/service-commands.js')).addServiceCommands,
  ],
  [
    'network',
    'show services and endpoints; trace the way to a service',
    async () => (await import('./commands/service/service-commands.js')).addNetworkCommands,
  ],
  [
    'route',
    'create, show, change and delete HTTP routes to services',
    async () => (await import('./commands/route/route-commands.js')).addRouteCommands,
  ],
  [
    'secret',
    'create, show, change and delete secrets, their access tokens and master keys',
    async () => (await import('./commands/secret/secret-commands.js')).addSecretCommands,
  ],
  [
    'config',
    'create, show, change and delete configs: files and variables that are no secrets',
    async () => (await import('./commands/config/config-commands.js')).addConfigCommands,
  ],
  [
    'policy',
    'apply, show, test and delete policies',
    async () => (await import('./commands/policy/policy-commands.js')).addPolicyCommands,
  ],
  [
    'node',
    'show, cordon, drain, label, join, ban and remove nodes',
    async () => (await import('./commands/node/node-commands.js')).addNodeCommands,
  ],
  [
    'plan',
    'list, show and execute stored plans',
    async () => (await import('./commands/plan/plan-commands.js')).addPlanCommands,
  ],
  [
    'top',
    'show resource usage of nodes, workloads and replicas',
    async () => (await import('./commands/top/top-commands.js')).addTopCommands,
  ],
  [
    'user',
    'create, show and delete users, their roles and their tokens',
    async () => (await import('./commands/user/user-commands.js')).addUserCommands,
  ],
  [
    'token',
    'create, list and revoke join tokens for machines',
    async () => (await import('./commands/token/token-commands.js')).addTokenCommands,
  ],
  [
    'context',
    'show and change the contexts of the configuration file',
    async () => (await import('./commands/context/context-commands.js')).addContextCommands,
  ],
  [
    'admin',
    "back up and restore the coordinator's state; certificate authority; units",
    async () => (await import('./commands/admin/admin-commands.js')).addAdminCommands,
  ],
];

/** The other commands. The module adds the command with the same name and description. */
const COMMANDS: readonly Declaration[] = [
  [
    'apply',
    'create or update workloads, services, routes and configs from manifests; prints the differences and the plan',
    async () => (await import('./commands/workload/apply-command.js')).addApplyCommand,
  ],
  [
    'init',
    'write a first manifest with comments; a command may follow --',
    async () => (await import('./commands/manifest/init-command.js')).addInitCommand,
  ],
  [
    'convert',
    'translate Compose files and Kubernetes objects to manifests',
    async () => (await import('./commands/manifest/convert-command.js')).addConvertCommand,
  ],
  [
    'schema',
    'print the JSON Schema of manifests, for editors',
    async () => (await import('./commands/manifest/schema-command.js')).addSchemaCommand,
  ],
  [
    'get',
    'list workloads, replicas, containers, services, routes, secrets, configs, policies, plans, nodes, events, namespaces, users or tokens',
    async () => (await import('./commands/general/general-commands.js')).addGetCommand,
  ],
  [
    'describe',
    'show details of a workload, service, route, secret, config, policy, plan or node',
    async () => (await import('./commands/general/general-commands.js')).addDescribeCommand,
  ],
  [
    'events',
    'list events',
    async () => (await import('./commands/event/event-commands.js')).addEventCommands,
  ],
  [
    'logs',
    'print the logs of workloads, replicas or containers',
    async () => (await import('./commands/replica/log-command.js')).addLogCommand,
  ],
  [
    'exec',
    'run a command in a workload, replica or container; the command follows --',
    async () => (await import('./commands/replica/exec-command.js')).addExecCommand,
  ],
  [
    'port-forward',
    'forward local ports to a workload, replica or container',
    async () => (await import('./commands/replica/port-forward-command.js')).addPortForwardCommand,
  ],
  [
    'scale',
    'set the number of replicas',
    async () => (await import('./commands/workload/workload-commands.js')).addScaleCommand,
  ],
  [
    'delete',
    'delete workloads',
    async () => (await import('./commands/workload/workload-commands.js')).addDeleteCommand,
  ],
  [
    'explain',
    'explain the placement of a workload, or a manifest field such as spec.rollout',
    async () => (await import('./commands/workload/workload-commands.js')).addExplainCommand,
  ],
  [
    'simulate',
    'predict the effect of lost, drained or added nodes and of changed workloads',
    async () => (await import('./commands/what-if/simulate-command.js')).addSimulateCommand,
  ],
  [
    'rebalance',
    'move replicas so that workloads spread evenly over zones and nodes',
    async () => (await import('./commands/what-if/rebalance-command.js')).addRebalanceCommand,
  ],
  [
    'login',
    'log in with a token, and store an identity that renews itself',
    async () => (await import('./commands/login/login-command.js')).addLoginCommand,
  ],
  [
    'logout',
    'revoke the identity of the context and remove its files',
    async () => (await import('./commands/login/logout-command.js')).addLogoutCommand,
  ],
  [
    'whoami',
    'show the user of the calls, the roles and the end of the login',
    async () => (await import('./commands/login/who-am-i-command.js')).addWhoAmICommand,
  ],
  [
    'version',
    'print the versions of cloudlessctl and of the coordinator',
    async () => (await import('./commands/general/version-command.js')).addVersionCommand,
  ],
  [
    'completion',
    'print the script for shell completion of commands, flags and names',
    async () => (await import('./commands/general/completion-command.js')).addCompletionCommand,
  ],
  [
    'help',
    'show the help of a command',
    async () => (await import('./commands/general/help-command.js')).addHelpCommand,
  ],
];

/** The hidden command that the completion scripts call. */
const COMPLETION_HELPER: Declaration = [
  '__complete',
  'print the candidates for the last word',
  async () => (await import('./commands/general/completion-command.js')).addCompletionHelper,
];

/** Declares all top-level commands, in the order of the help text. */
export function declareCommands(tree: CommandTree, program: Command): void {
  for (const group of GROUPS) tree.declareGroup(program, ...group);
  for (const command of COMMANDS) tree.declareCommand(program, ...command);
  tree.declareCommand(program, ...COMPLETION_HELPER, { hidden: true });
}
