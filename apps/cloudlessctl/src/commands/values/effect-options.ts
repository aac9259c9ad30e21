import type { Command } from 'commander';
import { createUsageFailure } from '../../call/failure.js';
import type { LocalInvocation } from '../../command-tree.js';
import { hasFlag } from '../options.js';
import { addWaitOption } from '../wait-options.js';

/** Adds the options of a command that shows the effect of a new version first. */
export function addEffectOptions(command: Command): Command {
  return addWaitOption(
    command
      .option('--dry-run', 'only show the change and the workloads that it affects')
      .option('--plan', 'the same as --dry-run: the values are not stored')
      .option('-y, --yes', 'answer the question of this command with yes'),
  );
}

/**
 * Returns true for `--dry-run` and `--plan`, which mean the same for values.
 * @throws {@link CliFailure} with exit code 2 together with `--wait`.
 */
export function readPreview(invocation: LocalInvocation): boolean {
  const isGiven = hasFlag(invocation, 'dryRun') || hasFlag(invocation, 'plan');
  if (isGiven && hasFlag(invocation, 'wait'))
    throw createUsageFailure('--dry-run and --plan change nothing to wait for; remove --wait');
  return isGiven;
}
