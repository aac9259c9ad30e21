import type { Command } from 'commander';
import type { CommandTree, Invocation } from '../../command-tree.js';
import { createUsageFailure } from '../../call/failure.js';
import { addNotes } from '../../help/help-format.js';
import { collectValue } from '../../flags/flag-values.js';
import { WAIT_CAPACITY_TEXT } from '../../wait/refusal-check.js';
import { getListOption, hasFlag } from '../options.js';
import { addOverrideOption, readOverride } from '../plan/override-option.js';
import { addPlanOptions, handlePreviewOptions } from '../plan/plan-options.js';
import type { ChangeInit } from '../plan/predict-changes.js';
import { planConfigs } from '../config/plan-configs.js';
import { planRoutes } from '../route/apply-routes.js';
import { planServices } from '../service/plan-services.js';
import { applyChanges, type ManifestChanges } from './apply-changes.js';
import { NOTHING_PRUNED, addToSet, findObjectsToPrune, readSetOption } from './apply-set.js';
import { readManifests } from './read-manifests.js';

/** Adds `apply`. */
export function addApplyCommand(tree: CommandTree, parent: Command): void {
  const command = tree.addCommand(
    parent,
    'apply',
    'create or update workloads, services, routes and configs from manifests; prints the differences and the plan',
    apply,
  );
  addOverrideOption(addPlanOptions(command))
    .option(
      '-f, --filename <path>',
      'manifest file, directory, or - for standard input (repeatable)',
      collectValue,
    )
    .option(
      '--set <name>',
      'record the workloads, services, routes and configs as members of this set, with a label',
    )
    .option(
      '--prune',
      'delete the workloads, services, routes and configs of the set that the manifests no longer contain',
    )
    .option('--wait', 'wait until the change is complete, at most 10m or --timeout')
    .option('--wait-capacity', WAIT_CAPACITY_TEXT);
  addNotes(
    command,
    'Configs are applied first, because the plan of a workload needs them, then services, so that their names and addresses exist when replicas start, then workloads, then routes (with --wait, when the workloads are complete). Routes that left the set are deleted before other routes change; services and configs are deleted last. The plan is shown first, and then executed exactly as shown. With warnings, the command asks on a terminal and otherwise needs --accept-warnings; --prune asks on a terminal. Exit code 9, or 7 when no node fits: not confirmed, nothing was changed.',
  );
}

/**
 * Reads all manifests, plans all workloads, services, routes and configs, then applies the plan.
 * Nothing is changed when a document is invalid or the coordinator refuses one of the changes.
 */
async function apply(invocation: Invocation): Promise<void> {
  let reading: Promise<ManifestChanges> | undefined;
  const read = (): Promise<ManifestChanges> => (reading ??= readChanges(invocation));
  const isPreview = await handlePreviewOptions(
    invocation,
    async () => (await read()).workloads,
    read,
  );
  if (!isPreview) await applyChanges(invocation, await read());
}

/** Returns the changes that the manifests describe, then the deletions of `--prune`. */
async function readChanges(invocation: Invocation): Promise<ManifestChanges> {
  const { session } = invocation;
  const setName = readSetOption(invocation);
  const paths = getListOption(invocation, 'filename');
  if (paths.length === 0)
    throw createUsageFailure("required option '-f, --filename <path>' not specified");
  const read = await readManifests(session, paths);
  const manifests = setName === undefined ? read : addToSet(read, setName);
  const override = readOverride(invocation);
  const isPruned = hasFlag(invocation, 'prune');
  const pruned =
    setName === undefined
      ? NOTHING_PRUNED
      : await findObjectsToPrune(session, manifests, setName, isPruned);
  return {
    workloads: [
      ...manifests.workloads.map(
        // The mask `*` replaces the whole spec, except that a manifest without a replica count keeps
        // the current count.
        ({ namespace, name, spec, generation }): ChangeInit => ({
          ...(generation === undefined ? {} : { manifestGeneration: generation }),
          change: {
            case: 'apply',
            value: { namespace, name, spec, updateMask: { paths: ['*'] }, ...override },
          },
        }),
      ),
      ...pruned.workloads.map((name): ChangeInit => ({ change: { case: 'delete', value: name } })),
    ],
    services: [
      ...(await planServices(session, manifests.services)),
      ...pruned.services.map((name) => ({ ...name, action: 'DELETE' as const })),
    ],
    routes: [
      // Deletions first: a route of the manifests may take the host and path prefix.
      ...pruned.routes.map((name) => ({ ...name, action: 'DELETE' as const })),
      ...(await planRoutes(session, manifests.routes)),
    ],
    configs: [
      ...(await planConfigs(session, manifests.configs)),
      ...pruned.configs.map((name) => ({ ...name, action: 'DELETE' as const })),
    ],
  };
}
