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
import { readOverride } from '../plan/override-option.js';
import { changeWorkloads } from '../workload/report-change.js';
import { selectWorkloads } from '../workload/select-workloads.js';
import { formatResumeHint } from '../../views/rollout-hints.js';

/**
 * Returns the workload name that the command was given.
 * @throws {@link CliFailure} when the name is missing or invalid.
 */
export const requireWorkloadName = (invocation: Invocation): WorkloadName => {
  requireOperands(invocation, 'workload');
  return parseWorkloadName(
    requireOperand(invocation, 0, 'name'),
    invocation.session.settings.namespace,
  );
};

/** Pauses rollouts, and prints the commands that resume them. */
export async function pauseRollouts(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  await changeWorkloads(invocation, async () => ({
    names: await selectWorkloads(invocation),
    plan: (name) => ({ case: 'pause', value: name }),
    call: (request) => session.client.pauseRollout(request, session.getCallOptions()),
    describe: (paused) =>
      `the rollout of ${formatVersions(paused)} is paused; ${formatResumeHint(session, paused)}`,
  }));
}

/** Resumes paused rollouts, or retries failed rollouts. */
export async function resumeRollouts(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  await changeWorkloads(invocation, async () => ({
    names: await selectWorkloads(invocation),
    plan: (name) => ({ case: 'resume', value: name }),
    call: (request) => session.client.resumeRollout(request, session.getCallOptions()),
    describe: (resumed) => `the rollout of ${formatVersions(resumed)} is resumed`,
  }));
}

/**
 * Promotes the version of a rollout that waits for a promotion. With `--version`, the coordinator
 * refuses to promote any other version.
 */
export async function promoteRollout(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const version = readVersionOption(invocation, 'version') ?? 0;
  await changeWorkloads(invocation, async () => ({
    names: [requireWorkloadName(invocation)],
    plan: (name) => ({ case: 'promote', value: { ...name, version } }),
    call: (request) =>
      session.client.promoteRollout({ ...request, version }, session.getCallOptions()),
    describe: describePromotion,
  }));
}

function describePromotion({ status }: Workload): string {
  const { strategy, version = 0, step = 0, steps = 0 } = status?.rollout ?? {};
  const next =
    strategy === Rollout_Strategy.BLUE_GREEN
      ? 'traffic switches to this version now'
      : step === 0
        ? 'the remaining replicas are replaced'
        : `the rollout continues after step ${step} of ${steps}`;
  return `version ${version} is promoted: ${next}`;
}

/**
 * Rolls back to an earlier version: by default the newest version with another template that was
 * rolled out completely.
 */
export async function undoRollouts(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  await changeWorkloads(invocation, async () => {
    const toVersion = readVersionOption(invocation, 'toVersion') ?? 0;
    const override = readOverride(invocation);
    return {
      names: await selectWorkloads(invocation),
      plan: (name) => ({ case: 'undo', value: { ...name, toVersion, ...override } }),
      call: (request) =>
        session.client.undoRollout(
          { ...request, toVersion, ...override },
          session.getCallOptions(),
        ),
      describe: async (undone) =>
        `${await readUndoCause(session, undone)}: rolling out as version ${undone.status?.version ?? 0}`,
    };
  });
}

/** Replaces every replica by a replica of a new version with the same template. */
export async function restartRollouts(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  await changeWorkloads(invocation, async () => {
    const override = readOverride(invocation);
    return {
      names: await selectWorkloads(invocation),
      plan: (name) => ({ case: 'restart', value: { ...name, ...override } }),
      call: (request) =>
        session.client.restartRollout({ ...request, ...override }, session.getCallOptions()),
      describe: (restarted) =>
        `restart: replacing every replica, as version ${restarted.status?.version ?? 0}`,
    };
  });
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
