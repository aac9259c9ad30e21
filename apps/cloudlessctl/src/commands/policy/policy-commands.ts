import type { Command } from 'commander';
import type { CommandTree } from '../../command-tree.js';
import { collectValue } from '../../flags/flag-values.js';
import { addNotes } from '../../help/help-format.js';
import { addOutputOptions } from '../general/list-objects.js';
import { applyPolicies, deletePolicies } from './change-policies.js';
import { getPolicies, listPolicies } from './show-policies.js';
import { explainPolicies, reportPolicies, testPolicies } from './test-policies.js';

/** Adds the subcommands of `policy`. */
export function addPolicyCommands(tree: CommandTree, parent: Command): void {
  addFiles(
    tree.addCommand(
      parent,
      'apply',
      'create policies of files, and replace those that differ',
      applyPolicies,
    ),
  );
  addAllNamespaces(
    addOutputOptions(
      tree.addCommand(parent, 'list', 'list policies that judge a namespace', listPolicies),
    ),
  ).alias('ls');
  tree.addCommand(parent, 'get <policy-names...>', 'show policies', getPolicies);
  tree.addCommand(parent, 'delete <policy-names...>', 'delete policies', deletePolicies);
  addNotes(
    addAllNamespaces(
      addFiles(
        tree.addCommand(
          parent,
          'test [workload]',
          'show what the policies of files would decide about stored workloads',
          testPolicies,
        ),
      ),
    ),
    'Nothing is stored. Stored policies of other names decide too. Exit code 4: a workload is denied.',
  );
  addAllNamespaces(
    tree.addCommand(parent, 'report', 'show the violations of stored workloads', reportPolicies),
  );
  tree.addCommand(
    parent,
    'explain <workload>',
    'show what policies decide about a workload, and why',
    explainPolicies,
  );
}

function addFiles(command: Command): Command {
  return command.option(
    '-f, --filename <path>',
    'file of policies, directory, or - for standard input (repeatable)',
    collectValue,
  );
}

function addAllNamespaces(command: Command): Command {
  return command.option('-A, --all-namespaces', 'include all namespaces');
}
