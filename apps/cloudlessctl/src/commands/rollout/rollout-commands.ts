import type { Command } from 'commander';
import type { CommandTree } from '../../command-tree.js';
import { addPlanOptions } from '../plan/plan-options.js';
import { addWaitOption } from '../workload/report-change.js';
import { addRolloutStatus } from './rollout-status.js';
import {
  pauseRollout,
  resumeRollout,
  promoteRollout,
  undoRollout,
  restartRollout,
} from './change-rollout.js';
import { showPlan, showHistory } from './show-rollout.js';

/** Adds the subcommands of `rollout`. */
export function addRolloutCommands(tree: CommandTree, parent: Command): void {
  addRolloutStatus(tree, parent);
  tree.addCommand(parent, 'plan <name>', 'show the remaining steps of a rollout', showPlan);
  tree.addCommand(parent, 'pause <name>', 'pause a rollout', pauseRollout);
  addWaitOption(
    tree.addCommand(
      parent,
      'resume <name>',
      'resume a paused rollout, or retry a failed rollout',
      resumeRollout,
    ),
  );
  addWaitOption(
    tree.addCommand(
      parent,
      'promote <name>',
      'continue a rollout that waits for a promotion',
      promoteRollout,
    ),
  ).option('--version <number>', 'promote only if this version waits for a promotion');
  addPlanOptions(
    addWaitOption(
      tree.addCommand(parent, 'undo [name]', 'roll back to an earlier version', undoRollout),
    ),
  ).option(
    '--to-version <number>',
    'version to roll back to; default: the version that was rolled out before',
  );
  addPlanOptions(
    addWaitOption(
      tree.addCommand(
        parent,
        'restart [name]',
        'replace every replica, with the same template',
        restartRollout,
      ),
    ),
  );
  tree
    .addCommand(parent, 'history <name>', 'list the stored versions', showHistory)
    .option('--version <number>', 'show this version as a manifest');
}
