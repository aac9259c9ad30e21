import type { Command } from 'commander';
import type { CommandTree, Invocation } from '../../command-tree.js';
import { createUsageFailure } from '../../call/failure.js';
import { addNotes } from '../../help/help-format.js';
import { collectValue } from '../../flags/flag-values.js';
import { WAIT_CAPACITY_TEXT } from '../../wait/refusal-check.js';
import { getListOption, hasFlag } from '../options.js';
import { addPlanOptions, handlePreviewOptions } from '../plan/plan-options.js';
import type { ChangeInit } from '../plan/predict-changes.js';
import { applyChanges } from './apply-changes.js';
import { addToSet, findWorkloadsToPrune, readSetOption } from './apply-set.js';
import { readManifests } from './read-manifests.js';

/** Adds `apply`. */
export function addApplyCommand(tree: CommandTree, parent: Command): void {
  const command = tree.addCommand(
    parent,
    'apply',
    'create or update workloads from manifests; prints the differences and the plan',
    apply,
  );
  addPlanOptions(command)
    .option(
      '-f, --filename <path>',
      'manifest file, directory, or - for standard input (repeatable)',
      collectValue,
    )
    .option('--set <name>', 'record the workloads as members of this set, with a label')
    .option('--prune', 'delete the workloads of the set that the manifests no longer contain')
    .option('--wait', 'wait until the change is complete, at most 10m or --timeout')
    .option('--wait-capacity', WAIT_CAPACITY_TEXT);
  addNotes(
    command,
    'The plan is shown first, and then executed exactly as shown. With warnings, the command asks on a terminal and otherwise needs --accept-warnings; --prune asks on a terminal. Exit code 9, or 7 when no node fits: not confirmed, nothing was changed.',
  );
}

/**
 * Reads all manifests, plans all workloads, then applies the plan. Nothing is changed when a document
 * is invalid or the coordinator refuses one of the changes.
 */
async function apply(invocation: Invocation): Promise<void> {
  if (await handlePreviewOptions(invocation, () => readChanges(invocation))) return;
  await applyChanges(invocation, await readChanges(invocation));
}

/** Returns the changes that the manifests describe, then the deletions of `--prune`. */
async function readChanges(invocation: Invocation): Promise<readonly ChangeInit[]> {
  const { session } = invocation;
  const setName = readSetOption(invocation);
  const paths = getListOption(invocation, 'filename');
  if (paths.length === 0)
    throw createUsageFailure("required option '-f, --filename <path>' not specified");
  const manifests = await readManifests(session, paths);
  const workloads = setName === undefined ? manifests : addToSet(manifests, setName);
  const isPruned = hasFlag(invocation, 'prune');
  const pruned =
    setName === undefined ? [] : await findWorkloadsToPrune(session, workloads, setName, isPruned);
  return [
    ...workloads.map(
      // The mask `*` replaces the whole spec, except that a manifest without a replica count keeps
      // the current count.
      ({ namespace, name, spec }): ChangeInit => ({
        change: { case: 'apply', value: { namespace, name, spec, updateMask: { paths: ['*'] } } },
      }),
    ),
    ...pruned.map((name): ChangeInit => ({ change: { case: 'delete', value: name } })),
  ];
}
