import type { Command } from 'commander';
import type { CommandTree } from '../../command-tree.js';
import { collectValue } from '../../flags/flag-values.js';
import { addNotes } from '../../help/help-format.js';
import { addEffectOptions } from '../values/effect-options.js';
import { addValueOptions } from '../values/value-options.js';
import { addListOptions } from '../workload/list-workloads.js';
import { createConfig, deleteConfigs, updateConfig } from './change-configs.js';
import { describeConfig, getConfigs, listConfigs } from './show-configs.js';

/** Adds the subcommands of `config`. */
export function addConfigCommands(tree: CommandTree, parent: Command): void {
  addMetadataOptions(
    addValueOptions(
      tree.addCommand(
        parent,
        'create <config>',
        'create a config: files and variables for the replicas of workloads',
        createConfig,
      ),
      'config',
    ),
  );
  addUpdateCommand(tree, parent);
  addListOptions(tree.addCommand(parent, 'list', 'list configs', listConfigs))
    .option('--prefix <text>', 'only configs whose names begin with this text')
    .alias('ls');
  addVersionOption(tree.addCommand(parent, 'get <configs...>', 'show configs', getConfigs))
    .option('--key <text>', 'only print the value of this key')
    .option('--out-dir <directory>', 'write each value to a new file of this directory')
    .option('--force', 'replace files of --out-dir that exist');
  addVersionOption(
    tree.addCommand(
      parent,
      'describe <config>',
      'show values and versions of a config, and the workloads that use the config',
      describeConfig,
    ),
  );
  tree
    .addCommand(
      parent,
      'delete <configs...>',
      'delete configs that no workload uses, with all versions',
      deleteConfigs,
    )
    .option('-y, --yes', 'answer the question of this command with yes');
}

function addUpdateCommand(tree: CommandTree, parent: Command): void {
  const command = addMetadataOptions(
    addValueOptions(
      tree.addCommand(
        parent,
        'update <config>',
        'change values of a config; workloads that use the config roll out',
        updateConfig,
      ),
      'config',
    ),
  )
    .option('--remove-key <text>', 'key to remove (repeatable)', collectValue)
    .option('--replace', 'remove the keys that are not given');
  addNotes(
    addEffectOptions(command),
    'The values and the workloads that change are shown first. On a terminal, the command asks when replicas change.',
  );
}

function addMetadataOptions(command: Command): Command {
  return command
    .option('--label <key=value>', 'label; key- removes the label (repeatable)', collectValue)
    .option('--immutable', 'refuse later changes of the values');
}

function addVersionOption(command: Command): Command {
  return command.option('--version <number>', 'show this kept version (default: the newest)');
}
