import { Rollout_Strategy } from '@cloudless/api';
import type { Workload } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { createUsageFailure } from '../../call/failure.js';
import { parseWorkloadName } from '../../names.js';
import type { WorkloadName } from '../../names.js';
import type { CliSession } from '../../call/cli-session.js';
import { parseWholeNumber } from '../../flags/spec-flags.js';
import { formatVersions } from '../../views/rollout-view.js';
import { requireOperand, requireOperands, getTextOption } from '../options.js';
import { handlePlanOptions } from '../plan/plan-options.js';
import { reportChange } from '../workload/report-change.js';
import { formatResumeHint } from './rollout-hints.js';

/**
 * Returns the workload name that the command was given.
 * @throws {@link CliFailure} when the name is missing or invalid.
 */
export const requireWorkloadName = (invocation: Invocation): WorkloadName => {
  requireOperands(invocation, 'name');
  return parseWorkloadName(
    requireOperand(invocation, 0, 'name'),
    invocation.session.settings.namespace,
  );
};

/** Pauses a rollout, and prints the command that resumes the rollout. */
export async function pauseRollout(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const name = requireWorkloadName(invocation);
  const paused = await session.client.pauseRollout(
    { ...name, requestId: session.getRequestId() },
    session.getCallOptions(),
  );
  await reportChange(
    invocation,
    paused,
    `the rollout of ${formatVersions(paused)} is paused; ${formatResumeHint(session, name)}`,
  );
}

/** Resumes a paused rollout, or retries a failed rollout. */
export async function resumeRollout(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const request = { ...requireWorkloadName(invocation), requestId: session.getRequestId() };
  const resumed = await session.client.resumeRollout(request, session.getCallOptions());
  await reportChange(invocation, resumed, `the rollout of ${formatVersions(resumed)} is resumed`);
}

/**
 * Promotes the version of a rollout that waits for a promotion. With `--version`, the coordinator
 * refuses to promote any other version.
 */
export async function promoteRollout(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const version = readVersionOption(invocation, 'version') ?? 0;
  const request = {
    ...requireWorkloadName(invocation),
    version,
    requestId: session.getRequestId(),
  };
  const promoted = await session.client.promoteRollout(request, session.getCallOptions());
  const {
    strategy,
    version: promotedVersion = 0,
    step = 0,
    steps = 0,
  } = promoted.status?.rollout ?? {};
  const next =
    strategy === Rollout_Strategy.BLUE_GREEN
      ? 'traffic switches to this version now'
      : step === 0
        ? 'the remaining replicas are replaced'
        : `the rollout continues after step ${step} of ${steps}`;
  await reportChange(invocation, promoted, `version ${promotedVersion} is promoted: ${next}`);
}

/**
 * Rolls back to an earlier version: by default the newest version with another template that was
 * rolled out completely.
 */
export async function undoRollout(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const readUndo = () => ({
    ...requireWorkloadName(invocation),
    toVersion: readVersionOption(invocation, 'toVersion') ?? 0,
  });
  if (await handlePlanOptions(invocation, () => [{ change: { case: 'undo', value: readUndo() } }]))
    return;
  const request = { ...readUndo(), requestId: session.getRequestId() };
  const undone = await session.client.undoRollout(request, session.getCallOptions());
  const cause = await readUndoCause(session, undone);
  await reportChange(
    invocation,
    undone,
    `${cause}: rolling out as version ${undone.status?.version ?? 0}`,
  );
}

/** Replaces every replica by a replica of a new version with the same template. */
export async function restartRollout(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  if (
    await handlePlanOptions(invocation, () => [
      { change: { case: 'restart', value: requireWorkloadName(invocation) } },
    ])
  )
    return;
  const request = { ...requireWorkloadName(invocation), requestId: session.getRequestId() };
  const restarted = await session.client.restartRollout(request, session.getCallOptions());
  const version = restarted.status?.version ?? 0;
  await reportChange(
    invocation,
    restarted,
    `restart: replacing every replica, as version ${version}`,
  );
}

/** Returns the recorded cause of the new version, for example `undo to version 1`. */
async function readUndoCause(
  session: CliSession,
  { namespace, name, status }: Workload,
): Promise<string> {
  try {
    const request = { namespace, name, version: status?.version ?? 0 };
    return (
      (await session.client.getWorkloadVersion(request, session.getCallOptions())).info?.cause ||
      'undo'
    );
  } catch {
    // The undo has succeeded. A failure to read the cause must not fail the command.
    return 'undo';
  }
}

/**
 * Parses a version option; undefined when the option was not given.
 * @throws {@link CliFailure} for a number below 1, and for text that is not a whole number.
 */
export function readVersionOption(
  invocation: Invocation,
  name: 'version' | 'toVersion',
): number | undefined {
  const text = getTextOption(invocation, name);
  if (text === undefined) return undefined;
  const flag = name === 'version' ? '--version' : '--to-version';
  const version = parseWholeNumber(flag, text);
  if (version === 0) throw createUsageFailure(`${flag}: version numbers start at 1`);
  return version;
}
