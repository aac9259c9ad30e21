import { ConnectError, Code } from '@connectrpc/connect';
import type { Workload } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { createUsageFailure } from '../../call/failure.js';
import { withEnvFiles } from '../../flags/env-file.js';
import { parseWorkloadName } from '../../names.js';
import type { WorkloadName } from '../../names.js';
import type { CliSession } from '../../call/cli-session.js';
import { needsCurrentSpec, createSpecPatch } from '../../flags/spec-flags.js';
import { getCommandAfterSeparator, requireOperand } from '../options.js';
import { readOverride, type OverrideFields } from '../plan/override-option.js';
import { handleChangeOptions } from '../plan/plan-options.js';
import { reportChange } from './report-change.js';

/**
 * Attempts of an update that conflicts with concurrent updates. Applies only to updates that first
 * read the workload.
 */
const MAX_UPDATE_ATTEMPTS = 4;

/** Creates a workload from flags. */
export async function createWorkload(invocation: Invocation): Promise<void> {
  const { session, options } = invocation;
  const name = parseWorkloadName(requireOperand(invocation, 0, 'name'), session.settings.namespace);
  const command = getCommandAfterSeparator(
    invocation,
    1,
    'cloudlessctl workload create web -- sleep 60',
  );
  if (command.length === 0 && options['image'] === undefined)
    throw createUsageFailure('nothing to run: give --image, or a command after --');
  const { spec } = createSpecPatch(await withEnvFiles(options, session.io), command);
  const fields = { ...name, spec, ...readOverride(invocation) };
  const createChanges = () => [{ change: { case: 'create' as const, value: fields } }];
  if (await handleChangeOptions(invocation, createChanges)) return;
  const created = await session.client.createWorkload(
    { ...fields, requestId: session.getRequestId() },
    session.getCallOptions(),
  );
  await reportChange(invocation, created, 'created');
}

/** Updates only the fields of a workload for which flags are given. */
export async function updateWorkload(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const name = parseWorkloadName(requireOperand(invocation, 0, 'name'), session.settings.namespace);
  const options = await withEnvFiles(invocation.options, session.io);
  const command = getCommandAfterSeparator(
    invocation,
    1,
    'cloudlessctl workload update web -- sleep 60',
  );
  const target = { ...name, ...readOverride(invocation) };
  // Validates the flags before anything is sent.
  if (createSpecPatch(options, command).paths.length === 0)
    throw createUsageFailure('nothing to change: give at least one flag, or a command after --');
  const createChanges = async () => {
    const request = await createUpdate(session, target, options, command);
    return [{ change: { case: 'update' as const, value: request } }];
  };
  if (await handleChangeOptions(invocation, createChanges)) return;
  const updated = await sendUpdate(session, target, options, command);
  await reportChange(invocation, updated, 'updated');
}

/** The workload of an update, and whether the update overrides policies. */
type UpdateTarget = WorkloadName & OverrideFields;

/** Sends the update, and repeats it when a concurrent update conflicts. */
async function sendUpdate(
  session: CliSession,
  target: UpdateTarget,
  options: Invocation['options'],
  command: readonly string[],
): Promise<Workload> {
  for (let attempt = 1; ; attempt += 1) {
    const request = await createUpdate(session, target, options, command);
    try {
      return await session.client.updateWorkload(
        { ...request, requestId: session.getRequestId() },
        session.getCallOptions(),
      );
    } catch (reason) {
      const isConflict =
        request.expectedGeneration !== undefined &&
        reason instanceof ConnectError &&
        reason.code === Code.Aborted;
      if (!isConflict || attempt === MAX_UPDATE_ATTEMPTS) throw reason;
    }
  }
}

/**
 * Returns the update that the flags describe. An update replaces a map, such as the labels, as a
 * whole. So cloudlessctl reads the current map, applies the flags, and sends the generation that it
 * read. The coordinator refuses the update when another change came between.
 */
async function createUpdate(
  session: CliSession,
  target: UpdateTarget,
  options: Invocation['options'],
  command: readonly string[],
) {
  const current = needsCurrentSpec(options)
    ? await session.client.getWorkload(
        { namespace: target.namespace, name: target.name },
        session.getCallOptions(),
      )
    : undefined;
  const { spec, paths } = createSpecPatch(options, command, current?.spec);
  const precondition: { readonly expectedGeneration?: bigint } =
    current === undefined ? {} : { expectedGeneration: current.generation };
  return { ...target, spec, updateMask: { paths: [...paths] }, ...precondition };
}
