import { ConnectError, Code } from '@connectrpc/connect';
import type { Plan } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { CliFailure, ExitCode } from '../../call/failure.js';
import type { CliSession } from '../../call/cli-session.js';
import { formatCount } from '../../output/human.js';
import { toOneLine } from '../../output/table.js';
import { formatPlannedChanges } from '../../views/stored-plan-view.js';
import { askUser, canAsk } from '../ask-user.js';
import { hasFlag } from '../options.js';
import {
  collectWarnings,
  predictChanges,
  predictEach,
  type ChangeInit,
  type PredictedWarnings,
} from './predict-changes.js';

/** When a command asks. */
export interface Confirmation {
  /**
   * Question that is asked on a terminal even without warnings, with the changes above it. Absent:
   * only warnings are asked about.
   */
  readonly question?: string;
  /** True with `--force`, which accepts the warnings about what it does. Default: false. */
  readonly isForced?: boolean;
  /**
   * True: `--dry-run` ends with the exit code with which the change itself ends without a terminal,
   * so that scripts can test whether the change would be made. Default: false, exit code 0.
   */
  readonly dryRunUsesExitCode?: boolean;
}

/**
 * Predicts the changes of a command before they are made. Returns when they may be made: there is no
 * warning that needs a confirmation, or the user has confirmed. A prediction that fails stops
 * nothing, because the change then fails for the same reason, or is repeated with a request id.
 * @throws {@link CliFailure} with exit code 9 when the user declines; with exit code 9, or 7 when no
 *   node fits a replica, when there are warnings and there is no terminal to ask; with exit code 4
 *   when the warnings have changed since the question.
 */
export async function confirmChanges(
  invocation: Invocation,
  changes: readonly ChangeInit[],
  { question, isForced = false }: Confirmation = {},
): Promise<void> {
  const { session } = invocation;
  const plans = await predictLeniently(session, changes);
  const warnings = collectWarnings(plans, isForced);
  const asksAnyway = question !== undefined && canAsk(session.io) && !hasFlag(invocation, 'yes');
  if (asksAnyway)
    await session.io.stderr.write(
      plans.map((plan) => formatPlannedChanges(plan, session.style)).join(''),
    );
  const wasAsked = await confirmWarnings(invocation, warnings, {
    ...(asksAnyway ? { question } : {}),
    areShown: asksAnyway,
  });
  if (!wasAsked) return;
  const now = collectWarnings(await predictLeniently(session, changes), isForced);
  requireSameWarnings(warnings, now);
}

/** Options of {@link confirmWarnings}. */
export interface WarningOptions {
  /** Question that is asked in any case. Absent: the user is only asked about warnings. */
  readonly question?: string;
  /** True when a plan with the warnings was printed before. */
  readonly areShown: boolean;
}

/**
 * Shows warnings, and asks or refuses when some need a confirmation.
 * @returns True when the user was asked and has confirmed.
 * @throws {@link CliFailure} with exit code 9 when the change is not confirmed, or 7 when there is no
 *   terminal to ask and no node fits a replica.
 */
export async function confirmWarnings(
  invocation: Invocation,
  { asked, shown, lacksCapacity }: PredictedWarnings,
  { question, areShown }: WarningOptions,
): Promise<boolean> {
  const { session } = invocation;
  const isAccepted = hasFlag(invocation, 'acceptWarnings');
  if (asked.length > 0 && !isAccepted && !canAsk(session.io)) {
    throw new CliFailure(
      toRefusalCode(lacksCapacity),
      [
        `nothing was changed: the change has ${formatCount(asked.length, 'warning')}; to make it anyway, use --accept-warnings`,
        ...asked.map((warning) => `  ${toOneLine(warning)}`),
      ].join('\n'),
    );
  }
  for (const warning of areShown ? [] : [...asked, ...shown])
    await session.printNotice(session.style.yellow(`warning: ${toOneLine(warning)}`));
  if (hasFlag(invocation, 'yes')) return false;
  if (question === undefined && (asked.length === 0 || isAccepted)) return false;
  if (await askUser(session.io, question ?? 'Continue?')) return true;
  throw new CliFailure(ExitCode.notConfirmed, 'nothing was changed');
}

/** Returns the exit code of a change with warnings that need a confirmation and have none. */
function toRefusalCode(lacksCapacity: boolean): number {
  return lacksCapacity ? ExitCode.noCapacity : ExitCode.notConfirmed;
}

/**
 * Ends a dry run whose prediction was shown, see {@link Confirmation.dryRunUsesExitCode}.
 * @throws {@link CliFailure} with exit code 9, or 7 when no node fits a replica, when the change
 *   needs a confirmation that no option gives.
 */
export function requireConfirmedPreview(
  invocation: Invocation,
  plans: readonly Plan[],
  isForced: boolean,
): void {
  const { asked, lacksCapacity } = collectWarnings(plans, isForced);
  if (asked.length === 0 || hasFlag(invocation, 'acceptWarnings')) return;
  throw new CliFailure(
    toRefusalCode(lacksCapacity),
    `the change has ${formatCount(asked.length, 'warning')}: without a terminal it needs --accept-warnings`,
  );
}

/**
 * Predicts the changes; a change that the coordinator refuses, or cannot predict, has no
 * prediction.
 */
async function predictLeniently(
  session: CliSession,
  changes: readonly ChangeInit[],
): Promise<readonly Plan[]> {
  try {
    return await predictChanges(session, changes);
  } catch (reason) {
    if (!(reason instanceof ConnectError)) throw reason;
    if (UNPREDICTED.has(reason.code))
      await session.printNotice(`the effect was not predicted: ${reason.rawMessage}`);
    if (changes.length < 2) return [];
  }
  try {
    return (await predictEach(session, changes)).plans;
  } catch (reason) {
    if (!(reason instanceof ConnectError)) throw reason;
    return [];
  }
}

/** Errors of a prediction that do not mean that the change fails too. */
const UNPREDICTED: ReadonlySet<Code> = new Set([
  Code.ResourceExhausted,
  Code.DeadlineExceeded,
  Code.Internal,
]);

/** @throws {@link CliFailure} with exit code 4 when there are new warnings to confirm. */
export function requireSameWarnings(before: PredictedWarnings, now: PredictedWarnings): void {
  const added = now.asked.filter((warning) => !before.asked.includes(warning));
  if (added.length === 0) return;
  throw new CliFailure(
    ExitCode.conflict,
    [
      'nothing was changed: the cluster has changed since the prediction; run the command again. New warnings:',
      ...added.map((warning) => `  ${toOneLine(warning)}`),
    ].join('\n'),
  );
}
