import type { Command } from 'commander';
import {
  RolloutStatus_Phase,
  Rollout_Strategy,
  VersionInfoSchema,
  WorkloadPlanSchema,
  WorkloadSpecSchema,
  WorkloadVersionSchema,
} from '@cloudless/api';
import type { Workload } from '@cloudless/api';
import { toJson } from '@bufbuild/protobuf';
import type { CommandTree, Invocation } from '../../command-tree.js';
import { createUsageFailure } from '../../call/failure.js';
import { printYaml } from '../../manifest/print-yaml.js';
import { formatWorkloadName, parseWorkloadName } from '../../names.js';
import type { WorkloadName } from '../../names.js';
import { formatTime } from '../../output/human.js';
import { formatResumeHint } from './rollout-hints.js';
import { toMessageJson } from '../../call/cli-session.js';
import type { CliSession } from '../../call/cli-session.js';
import { parseWholeNumber } from '../../flags/spec-flags.js';
import { formatPlanLines } from '../../views/plan-view.js';
import { formatRolloutLine, formatVersionTable, formatVersions } from '../../views/rollout-view.js';
import { requireOperand, requireOperands, getTextOption } from '../options.js';
import { addPlanOptions, handlePlanOptions } from '../plan/plan-options.js';
import { addRolloutStatus } from './rollout-status.js';
import { addWaitOption, reportChange } from '../workload/workload-commands.js';

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

const requireWorkloadName = (invocation: Invocation): WorkloadName => {
  requireOperands(invocation, 'name');
  return parseWorkloadName(
    requireOperand(invocation, 0, 'name'),
    invocation.session.settings.namespace,
  );
};

async function pauseRollout(invocation: Invocation): Promise<void> {
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

async function resumeRollout(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const request = { ...requireWorkloadName(invocation), requestId: session.getRequestId() };
  const resumed = await session.client.resumeRollout(request, session.getCallOptions());
  await reportChange(invocation, resumed, `the rollout of ${formatVersions(resumed)} is resumed`);
}

async function promoteRollout(invocation: Invocation): Promise<void> {
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

async function undoRollout(invocation: Invocation): Promise<void> {
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

async function restartRollout(invocation: Invocation): Promise<void> {
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

async function showPlan(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const name = requireWorkloadName(invocation);
  const workload = await session.client.getWorkload(name, session.getCallOptions());
  // A plan without a change of the spec contains the remaining steps.
  const remaining = await session.client.planWorkload(
    { ...name, spec: {} },
    session.getCallOptions(),
  );
  if (session.isStructured) return session.printValue(toMessageJson(WorkloadPlanSchema, remaining));
  await session.printStatus(`${formatWorkloadName(name)}: ${formatRolloutLine(workload)}`);
  const lines = formatPlanLines(remaining, session.style);
  await session.print(
    lines.length === 0
      ? `  no steps left${explainMissingSteps(workload)}\n`
      : `${lines.join('\n')}\n`,
  );
}

function explainMissingSteps({ status }: Workload): string {
  switch (status?.rollout?.phase) {
    case RolloutStatus_Phase.PAUSED:
      return status.rollout.waitsForPromotion
        ? ' until the rollout is promoted'
        : ' while the rollout is paused';
    case RolloutStatus_Phase.FAILED:
      return ' because the rollout has failed';
    default:
      return '';
  }
}

async function showHistory(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const name = requireWorkloadName(invocation);
  const version = readVersionOption(invocation, 'version');
  if (version !== undefined) return showVersion(session, name, version);
  const { status } = await session.client.getWorkload(name, session.getCallOptions());
  const versions = status?.versions ?? [];
  if (session.isStructured)
    await session.printValue({
      versions: versions.map((info) => toMessageJson(VersionInfoSchema, info)),
    });
  else await session.print(formatVersionTable(versions, session.nowMs, session.style));
}

async function showVersion(
  session: CliSession,
  { namespace, name }: WorkloadName,
  version: number,
): Promise<void> {
  const found = await session.client.getWorkloadVersion(
    { namespace, name, version },
    session.getCallOptions(),
  );
  if (session.isStructured) return session.printValue(toMessageJson(WorkloadVersionSchema, found));
  const { info, template } = found;
  const about = [`version ${version}`, info?.cause ?? '', formatTime(info?.createdAt)]
    .filter((part) => part !== '')
    .join(', ');
  const spec = template === undefined ? {} : toJson(WorkloadSpecSchema, template);
  await session.print(`# ${about}; replicas, rollout and disconnect are not part of a version\n`);
  await session.print(printYaml({ kind: 'Workload', namespace, name, spec }));
}

function readVersionOption(
  invocation: Invocation,
  name: 'version' | 'toVersion',
): number | undefined {
  const given = getTextOption(invocation, name);
  if (given === undefined) return undefined;
  const flag = name === 'version' ? '--version' : '--to-version';
  const version = parseWholeNumber(flag, given);
  if (version === 0) throw createUsageFailure(`${flag}: version numbers start at 1`);
  return version;
}
