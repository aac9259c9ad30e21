import type { Command } from 'commander';
import { WAIT_CAPACITY_TEXT } from '../../wait/refusal-check.js';
import type { CommandTree } from '../../command-tree.js';
import { addOutputOptions } from '../general/list-objects.js';
import { executeStoredPlan } from './execute-plan.js';
import { addOverrideOption } from './override-option.js';
import { listPlans, requirePlanId, showPlan } from './show-plans.js';

/** Adds `plan list`, `plan show` and `plan execute`. */
export function addPlanCommands(tree: CommandTree, group: Command): void {
  addOutputOptions(
    tree.addCommand(group, 'list', 'list the stored plans, newest first', listPlans),
  ).option('-A, --all-namespaces', 'no effect: plans of all namespaces are always listed');
  tree.addCommand(group, 'show <plan>', 'show a stored plan', showPlan);
  const execute = tree.addCommand(
    group,
    'execute <plan>',
    'execute a stored plan exactly as it was shown',
    (invocation) => executeStoredPlan(invocation, requirePlanId(invocation)),
  );
  addOverrideOption(execute)
    .option('--wait', 'wait until the workloads have settled and the nodes are drained')
    .option('--wait-capacity', WAIT_CAPACITY_TEXT);
}
