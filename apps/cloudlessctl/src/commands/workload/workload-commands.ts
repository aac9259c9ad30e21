import type { Command } from 'commander';
import { ExplainWorkloadResponseSchema } from '@cloudless/api';
import type { CommandTree, Invocation } from '../../command-tree.js';
import { parseWorkloadName } from '../../names.js';
import { toMessageJson } from '../../call/cli-session.js';
import { addSpecFlags } from '../../flags/spec-flags.js';
import { createUsageFailure } from '../../call/failure.js';
import { formatExplanation } from '../../views/explanation-view.js';
import { hasFlag, requireOperand } from '../options.js';
import { addOverrideOption } from '../plan/override-option.js';
import { addChangeOptions, addPlanOptions } from '../plan/plan-options.js';
import { addExecCommand } from '../replica/exec-command.js';
import { addLogCommand } from '../replica/log-command.js';
import { addPortForwardCommand } from '../replica/port-forward-command.js';
import { addWorkloadTopCommand } from '../top/top-commands.js';
import { collectValue } from '../../flags/flag-values.js';
import { addWaitOption } from '../wait-options.js';
import { addListOptions, listWorkloads, getWorkloads, describeWorkload } from './list-workloads.js';
import { createWorkload, updateWorkload } from './change-workload.js';
import { deleteWorkloads } from './delete-workloads.js';
import { scaleWorkloads } from './scale-workload.js';
import { addSelectorOption } from './select-workloads.js';

/** Adds the subcommands of `workload`. */
export function addWorkloadCommands(tree: CommandTree, parent: Command): void {
  const createCommand = tree.addCommand(
    parent,
    'create <name> [command...]',
    'create a workload; its command follows --',
    createWorkload,
  );
  addSpecFlags(createCommand, true);
  addOverrideOption(addChangeOptions(addWaitOption(createCommand)));
  const update = tree.addCommand(
    parent,
    'update <workload> [command...]',
    'change only the fields that the flags set',
    updateWorkload,
  );
  addSpecFlags(update, false);
  addOverrideOption(addChangeOptions(addWaitOption(update)));
  addListOptions(tree.addCommand(parent, 'list', 'list workloads', listWorkloads)).alias('ls');
  tree.addCommand(parent, 'get <workloads...>', 'show workloads', (invocation) =>
    getWorkloads(invocation, invocation.operands),
  );
  tree.addCommand(parent, 'describe <workload>', 'show details of a workload', (invocation) =>
    describeWorkload(invocation, requireOperand(invocation, 0, 'name')),
  );
  addWorkloadTopCommand(tree, parent, 'top');
  addLogCommand(tree, parent);
  addExecCommand(tree, parent);
  addPortForwardCommand(tree, parent);
  addScaleCommand(tree, parent);
  addDeleteCommand(tree, parent);
  addExplainCommand(tree, parent);
}

/** Adds `scale`. */
export function addScaleCommand(tree: CommandTree, parent: Command): void {
  const command = tree.addCommand(
    parent,
    'scale [workloads...]',
    'set the number of replicas',
    scaleWorkloads,
  );
  addOverrideOption(addPlanOptions(addWaitOption(addSelectorOption(command)))).option(
    '--replicas <number>',
    'number of replicas; without this flag the last operand',
  );
}

/** Adds `delete`. */
export function addDeleteCommand(tree: CommandTree, parent: Command): void {
  const command = tree.addCommand(
    parent,
    'delete [workloads...]',
    'delete workloads',
    deleteWorkloads,
  );
  addChangeOptions(addWaitOption(addSelectorOption(command)))
    .option(
      '-f, --filename <path>',
      'workloads of a manifest file, of a directory, or - for standard input (repeatable)',
      collectValue,
    )
    .option('--ignore-not-found', 'succeed if a workload does not exist');
}

/** Adds `explain`. */
export function addExplainCommand(tree: CommandTree, parent: Command): void {
  tree
    .addCommand(
      parent,
      'explain <workload-or-field>',
      'explain the placement of a workload, or a manifest field such as spec.rollout',
      explain,
    )
    .option('--recursive', 'with a field: list the fields at every level below');
}

async function explain(invocation: Invocation): Promise<void> {
  const operand = requireOperand(invocation, 0, 'workload or field');
  if (isFieldPath(operand)) {
    // The schema of manifests is large, and explaining a workload does not need it.
    const { explainField } = await import('../manifest/explain-field.js');
    return explainField(invocation, operand);
  }
  if (hasFlag(invocation, 'recursive'))
    throw createUsageFailure('--recursive applies to manifest fields such as spec.rollout');
  if (/^services?\/./.test(operand)) {
    const { explainService } = await import('../service/explain-service.js');
    return explainService(invocation, operand.replace(/^services?\//, ''));
  }
  return explainWorkload(invocation, operand);
}

/**
 * Returns true when the operand is a field of a manifest, such as `spec` or `spec.rollout`, and not
 * a workload. Names of workloads have no dots; a workload called `spec` is explained as
 * `<namespace>/spec`.
 */
function isFieldPath(operand: string): boolean {
  return /^(?:spec|manifest)$|^[^/]*\./.test(operand);
}

async function explainWorkload(invocation: Invocation, operand: string): Promise<void> {
  const { session } = invocation;
  const name = parseWorkloadName(operand, session.settings.namespace);
  const explained = await session.client.explainWorkload(name, session.getCallOptions());
  if (session.isStructured)
    await session.printValue(toMessageJson(ExplainWorkloadResponseSchema, explained));
  else
    await session.print(
      formatExplanation(
        explained,
        session.nowMs,
        session.style,
        session.settings.output === 'wide',
      ),
    );
}
