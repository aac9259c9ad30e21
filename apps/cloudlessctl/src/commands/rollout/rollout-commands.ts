import type { Command } from 'commander';
import type { CommandTree } from '../../command-tree.js';
import { addOverrideOption } from '../plan/override-option.js';
import { addChangeOptions, addPlanOptions } from '../plan/plan-options.js';
import { addWaitOption } from '../wait-options.js';
import { addSelectorOption } from '../workload/select-workloads.js';
import { addRolloutStatus } from './rollout-status.js';
import {
  pauseRollouts,
  promoteRollout,
  restartRollouts,
  resumeRollouts,
  undoRollouts,
} from './change-rollout.js';
import { showPlan, showHistory } from './show-rollout.js';

/** Adds the subcommands of `rollout`. */
export function addRolloutCommands(tree: CommandTree, parent: Command): void {
  addRolloutStatus(tree, parent);
  tree.addCommand(parent, 'plan <workload>', 'show the remaining steps of a rollout', showPlan);
  const pause = tree.addCommand(parent, 'pause [workloads...]', 'pause rollouts', pauseRollouts);
  addChangeOptions(addSelectorOption(pause));
  const resume = tree.addCommand(
    parent,
    'resume [workloads...]',
    'resume paused rollouts, or retry failed rollouts',
    resumeRollouts,
  );
  addChangeOptions(addWaitOption(addSelectorOption(resume)));
  const promote = tree.addCommand(
    parent,
    'promote <workload>',
    'continue a rollout that waits for a promotion',
    promoteRollout,
  );
  addChangeOptions(addWaitOption(promote)).option(
    '--version <number>',
    'promote only if this version waits for a promotion',
  );
  const undo = tree.addCommand(
    parent,
    'undo [workloads...]',
    'roll back to an earlier version',
    undoRollouts,
  );
  addOverrideOption(addPlanOptions(addWaitOption(addSelectorOption(undo)))).option(
    '--to-version <number>',
    'version to roll back to; default: the version that was rolled out before',
  );
  const restart = tree.addCommand(
    parent,
    'restart [workloads...]',
    'replace every replica, with the same template',
    restartRollouts,
  );
  addOverrideOption(addPlanOptions(addWaitOption(addSelectorOption(restart))));
  tree
    .addCommand(parent, 'history <workload>', 'list the stored versions', showHistory)
    .option('--version <number>', 'show this version as a manifest');
}
