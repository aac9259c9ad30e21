import type { Command } from 'commander';
import { Option } from 'commander';
import { create } from '@bufbuild/protobuf';
import { RolloutStatusSchema, RolloutStatus_Phase } from '@cloudless/api';
import type { Workload } from '@cloudless/api';
import type { CommandTree, Invocation } from '../../command-tree.js';
import { CliFailure, ExitCode } from '../../call/failure.js';
import { addNotes } from '../../help/help-format.js';
import { formatWorkloadName } from '../../names.js';
import type { WorkloadName } from '../../names.js';
import { toMessageJson } from '../../call/cli-session.js';
import type { CliSession } from '../../call/cli-session.js';
import { formatGate, formatRolloutLine } from '../../views/rollout-view.js';
import { hasUnplaced } from '../../wait/judge-workload.js';
import { drawResult } from '../../wait/picture.js';
import { RefusalCheck, WAIT_CAPACITY_TEXT } from '../../wait/refusal-check.js';
import { getFraction } from '../../wait/rollout-counts.js';
import { withFailureDetails } from '../../wait/wait-workload.js';
import { watchWorkload } from '../../wait/watch-workload.js';
import { drawWorkload } from '../../wait/workload-picture.js';
import { changeEach } from '../change-each.js';
import { hasFlag, getTextOption } from '../options.js';
import { addSelectorOption, selectWorkloads } from '../workload/select-workloads.js';
import { formatPromoteHint, formatResumeHint } from '../../views/rollout-hints.js';

/** Adds `rollout status`. */
export function addRolloutStatus(tree: CommandTree, parent: Command): void {
  const command = tree.addCommand(
    parent,
    'status [workloads...]',
    'show the status of rollouts until they end',
    showStatuses,
  );
  addSelectorOption(command)
    .addOption(
      new Option('--watch <boolean>', 'with false, print the current status and exit')
        .choices(['true', 'false'])
        .default('true'),
    )
    .option('--wait-promotion', 'keep waiting while the rollout waits for a promotion')
    .option('--wait-capacity', WAIT_CAPACITY_TEXT);
  addNotes(
    command,
    'Exits with 0 when the rollout is complete or waits for a promotion, with 8 when it has failed, was rolled back or is paused, with 7 when no node can ever run a replica, and with 6 when --timeout expires. -o json and yaml print the current status. The gate of a canary step is shown with its figures on a terminal, with --watch=false, and in JSON and YAML. Several rollouts are shown one after the other; the exit code is that of the first that did not succeed.',
  );
}

async function showStatuses(invocation: Invocation): Promise<number> {
  const { session } = invocation;
  const names = await selectWorkloads(invocation);
  if (session.isStructured) return printStatuses(session, names);
  const { throwFailure } = await changeEach(session, names, {
    describe: formatWorkloadName,
    change: (name) => showStatus(invocation, name),
    noun: 'rollout',
  });
  throwFailure();
  return ExitCode.ok;
}

/**
 * Prints the current status of a rollout; of several rollouts one value each.
 * @returns The exit code of the first rollout that did not succeed.
 */
async function printStatuses(session: CliSession, names: readonly WorkloadName[]): Promise<number> {
  let exitCode: number = ExitCode.ok;
  for (const name of names) {
    const workload = await session.client.getWorkload(name, session.getCallOptions());
    const status = toMessageJson(
      RolloutStatusSchema,
      workload.status?.rollout ?? create(RolloutStatusSchema),
    );
    if (names.length === 1) await session.printValue(status);
    else await session.printItem({ ...name, status });
    const result = findResult(session, workload, /* waitPromotion */ false);
    if (exitCode === ExitCode.ok) exitCode = result?.exitCode ?? ExitCode.ok;
  }
  return exitCode;
}

async function showStatus(invocation: Invocation, name: WorkloadName): Promise<void> {
  const { session } = invocation;
  const workload = await session.client.getWorkload(name, session.getCallOptions());
  if (getTextOption(invocation, 'watch') === 'false') {
    const { rollout } = workload.status ?? {};
    const gate = rollout === undefined ? '' : formatGate(rollout, session.nowMs);
    await session.print(`${formatLine(workload)}\n${gate === '' ? '' : `gate ${gate}\n`}`);
    const result = findResult(session, workload, /* waitPromotion */ false);
    return reportResult(session, workload, result);
  }
  const [final, result] = await followRollout(session, workload, {
    waitPromotion: hasFlag(invocation, 'waitPromotion'),
    waitCapacity: hasFlag(invocation, 'waitCapacity'),
  });
  return reportResult(session, final, result);
}

/** The result of a rollout that has ended, or that waits for a user. */
interface RolloutResult {
  readonly exitCode: number;
  /** Message that is printed besides the status; empty when there is none. */
  readonly text: string;
}

/** Conditions under which `rollout status` keeps waiting. */
interface FollowOptions {
  /** True continues while the rollout waits for a promotion. */
  readonly waitPromotion: boolean;
  /** True continues when no present node can ever run a replica. */
  readonly waitCapacity: boolean;
}

/**
 * Shows the progress until the rollout ends or waits for a user.
 * @param subject - The current state of the workload.
 * @returns The last state of the workload, and the result of the rollout.
 * @throws {@link CliFailure} when `--timeout` expires, the workload was deleted, or no node can ever
 *   run a replica.
 */
async function followRollout(
  session: CliSession,
  subject: Workload,
  { waitPromotion, waitCapacity }: FollowOptions,
): Promise<readonly [Workload, RolloutResult]> {
  const refusal = new RefusalCheck(session, subject);
  let last = formatLine(subject);
  try {
    return await watchWorkload<readonly [Workload, RolloutResult]>(session, {
      subject,
      timeoutMs: session.settings.timeoutMs,
      abortSignal: refusal.signal,
      onTimeout: (after) =>
        new CliFailure(ExitCode.timeout, `the rollout did not complete within ${after}: ${last}`),
      evaluate: async (workload, progress) => {
        if (workload === undefined)
          throw new CliFailure(
            ExitCode.conflict,
            `${formatWorkloadName(subject)} was deleted while waiting`,
          );
        const result = findResult(session, workload, waitPromotion);
        refusal.setUnplaced(!waitCapacity && result === undefined && hasUnplaced(workload));
        last = formatLine(workload);
        const isGood = result?.exitCode === ExitCode.ok;
        const text = last;
        await progress.showState({
          text,
          fraction: getFraction(workload),
          isFinal: result !== undefined,
          draw: (view) => (isGood ? [drawResult(text, view)] : drawWorkload(workload, view)),
        });
        return result === undefined ? undefined : [workload, result];
      },
    });
  } finally {
    refusal.end();
  }
}

/**
 * Prints the result of the rollout.
 * @param result - Undefined while the rollout is in progress.
 * @throws {@link CliFailure} when the rollout did not succeed.
 */
async function reportResult(
  session: CliSession,
  workload: Workload,
  result: RolloutResult | undefined,
): Promise<void> {
  if (result === undefined) return;
  if (result.exitCode !== ExitCode.ok) {
    throw await withFailureDetails(
      session,
      workload,
      new CliFailure(result.exitCode, `${formatWorkloadName(workload)}: ${result.text}`),
    );
  }
  if (result.text !== '') await session.printNotice(result.text);
}

/**
 * Returns the result of the rollout; undefined while the rollout is in progress, or when the status
 * does not describe the current spec yet.
 * @param waitPromotion - True: a rollout that waits for a promotion counts as in progress.
 */
function findResult(
  session: CliSession,
  workload: Workload,
  waitPromotion: boolean,
): RolloutResult | undefined {
  const { status, generation } = workload;
  const rollout = status?.rollout;
  if (status === undefined || rollout === undefined || status.observedGeneration < generation)
    return undefined;
  const reason = rollout.failure?.reason || rollout.reason;
  const createFailure = (text: string): RolloutResult => ({
    exitCode: ExitCode.rolloutFailed,
    text: reason === '' ? text : `${text}: ${reason}`,
  });
  switch (rollout.phase) {
    case RolloutStatus_Phase.COMPLETED:
      return { exitCode: ExitCode.ok, text: '' };
    case RolloutStatus_Phase.FAILED:
      return createFailure(`the rollout of version ${rollout.version} failed`);
    case RolloutStatus_Phase.ROLLED_BACK:
      return createFailure(
        `version ${rollout.failure?.version ?? 0} failed and was rolled back, as version ${rollout.version}`,
      );
    case RolloutStatus_Phase.PAUSED:
      if (rollout.waitsForPromotion && !rollout.pausedByUser) {
        return waitPromotion
          ? undefined
          : { exitCode: ExitCode.ok, text: formatPromoteHint(session, workload) };
      }
      return {
        exitCode: ExitCode.rolloutFailed,
        text: `the rollout is paused${rollout.reason === '' ? '' : `: ${rollout.reason}`}${rollout.pausedByUser ? `; ${formatResumeHint(session, workload)}` : ''}`,
      };
    default:
      return undefined;
  }
}

const formatLine = (workload: Workload): string =>
  `${formatWorkloadName(workload)}: ${formatRolloutLine(workload)}`;
