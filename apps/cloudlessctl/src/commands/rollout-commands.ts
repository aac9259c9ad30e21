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
import type { CommandTree, Invocation } from '../command-tree.js';
import { usageFailure } from '../failure.js';
import { printYaml } from '../manifest/print-yaml.js';
import { labelOf, parseWorkloadName } from '../names.js';
import type { WorkloadName } from '../names.js';
import { formatTime } from '../output/human.js';
import { resumeHint } from '../rollout-hints.js';
import { messageJson } from '../session.js';
import type { Session } from '../session.js';
import { parseWholeNumber } from '../spec-flags.js';
import { planLines } from '../views/plan-view.js';
import { rolloutLine, versionTable, versionsText } from '../views/rollout-view.js';
import { operand, requireOperands, textOption } from './options.js';
import { addPlanOptions, throughPlan } from './plan-command.js';
import { addRolloutStatus } from './rollout-status.js';
import { addWait, finishChange } from './workload-commands.js';

/** Adds the subcommands of `rollout`. */
export function addRolloutCommands(tree: CommandTree, parent: Command): void {
  addRolloutStatus(tree, parent);
  tree.leaf(parent, 'plan <name>', 'show the remaining steps of a rollout', plan);
  tree.leaf(parent, 'pause <name>', 'pause a rollout', pause);
  addWait(
    tree.leaf(
      parent,
      'resume <name>',
      'resume a paused rollout, or retry a failed rollout',
      resume,
    ),
  );
  addWait(
    tree.leaf(parent, 'promote <name>', 'continue a rollout that waits for a promotion', promote),
  ).option('--version <number>', 'promote only if this version waits for a promotion');
  addPlanOptions(
    addWait(tree.leaf(parent, 'undo [name]', 'roll back to an earlier version', undo)),
  ).option(
    '--to-version <number>',
    'version to roll back to; default: the version that was rolled out before',
  );
  addPlanOptions(
    addWait(
      tree.leaf(parent, 'restart [name]', 'replace every replica, with the same template', restart),
    ),
  );
  tree
    .leaf(parent, 'history <name>', 'list the stored versions', history)
    .option('--version <number>', 'show this version as a manifest');
}

const nameOf = (invocation: Invocation): WorkloadName => {
  requireOperands(invocation, 'name');
  return parseWorkloadName(operand(invocation, 0, 'name'), invocation.session.settings.namespace);
};

async function pause(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const name = nameOf(invocation);
  const paused = await session.client.pauseRollout(
    { ...name, requestId: session.requestId() },
    session.callOptions(),
  );
  await finishChange(
    invocation,
    paused,
    `the rollout of ${versionsText(paused)} is paused; ${resumeHint(session, name)}`,
  );
}

async function resume(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const request = { ...nameOf(invocation), requestId: session.requestId() };
  const resumed = await session.client.resumeRollout(request, session.callOptions());
  await finishChange(invocation, resumed, `the rollout of ${versionsText(resumed)} is resumed`);
}

async function promote(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const version = versionOption(invocation, 'version') ?? 0;
  const request = { ...nameOf(invocation), version, requestId: session.requestId() };
  const promoted = await session.client.promoteRollout(request, session.callOptions());
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
  await finishChange(invocation, promoted, `version ${promotedVersion} is promoted: ${next}`);
}

async function undo(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const undoing = () => ({
    ...nameOf(invocation),
    toVersion: versionOption(invocation, 'toVersion') ?? 0,
  });
  if (await throughPlan(invocation, () => [{ change: { case: 'undo', value: undoing() } }])) return;
  const request = { ...undoing(), requestId: session.requestId() };
  const undone = await session.client.undoRollout(request, session.callOptions());
  const cause = await causeOf(session, undone);
  await finishChange(
    invocation,
    undone,
    `${cause}: rolling out as version ${undone.status?.version ?? 0}`,
  );
}

async function restart(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  if (
    await throughPlan(invocation, () => [
      { change: { case: 'restart', value: nameOf(invocation) } },
    ])
  )
    return;
  const request = { ...nameOf(invocation), requestId: session.requestId() };
  const restarted = await session.client.restartRollout(request, session.callOptions());
  const version = restarted.status?.version ?? 0;
  await finishChange(
    invocation,
    restarted,
    `restart: replacing every replica, as version ${version}`,
  );
}

/** Returns the recorded cause of the new version, for example `undo to version 1`. */
async function causeOf(session: Session, { namespace, name, status }: Workload): Promise<string> {
  try {
    const request = { namespace, name, version: status?.version ?? 0 };
    return (
      (await session.client.getWorkloadVersion(request, session.callOptions())).info?.cause ||
      'undo'
    );
  } catch {
    // The undo has succeeded. A failure to read the cause must not fail the command.
    return 'undo';
  }
}

async function plan(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const name = nameOf(invocation);
  const workload = await session.client.getWorkload(name, session.callOptions());
  // A plan without a change of the spec contains the remaining steps.
  const ahead = await session.client.planWorkload({ ...name, spec: {} }, session.callOptions());
  if (session.structured) return session.printValue(messageJson(WorkloadPlanSchema, ahead));
  await session.tell(`${labelOf(name)}: ${rolloutLine(workload)}`);
  const lines = planLines(ahead, session.style);
  await session.print(
    lines.length === 0 ? `  no steps left${whyNothing(workload)}\n` : `${lines.join('\n')}\n`,
  );
}

function whyNothing({ status }: Workload): string {
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

async function history(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const name = nameOf(invocation);
  const version = versionOption(invocation, 'version');
  if (version !== undefined) return showVersion(session, name, version);
  const { status } = await session.client.getWorkload(name, session.callOptions());
  const versions = status?.versions ?? [];
  if (session.structured)
    await session.printValue({
      versions: versions.map((info) => messageJson(VersionInfoSchema, info)),
    });
  else await session.print(versionTable(versions, session.nowMs, session.style));
}

async function showVersion(
  session: Session,
  { namespace, name }: WorkloadName,
  version: number,
): Promise<void> {
  const found = await session.client.getWorkloadVersion(
    { namespace, name, version },
    session.callOptions(),
  );
  if (session.structured) return session.printValue(messageJson(WorkloadVersionSchema, found));
  const { info, template } = found;
  const about = [`version ${version}`, info?.cause ?? '', formatTime(info?.createdAt)]
    .filter((part) => part !== '')
    .join(', ');
  const spec = template === undefined ? {} : toJson(WorkloadSpecSchema, template);
  await session.print(`# ${about}; replicas, rollout and disconnect are not part of a version\n`);
  await session.print(printYaml({ kind: 'Workload', namespace, name, spec }));
}

function versionOption(invocation: Invocation, name: 'version' | 'toVersion'): number | undefined {
  const given = textOption(invocation, name);
  if (given === undefined) return undefined;
  const flag = name === 'version' ? '--version' : '--to-version';
  const version = parseWholeNumber(flag, given);
  if (version === 0) throw usageFailure(`${flag}: version numbers start at 1`);
  return version;
}
