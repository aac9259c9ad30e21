import type { Command } from 'commander';
import { Option } from 'commander';
import { RolloutStatusSchema, RolloutStatus_Phase } from '@cloudless/api';
import { create } from '@bufbuild/protobuf';
import type { Workload } from '@cloudless/api';
import type { CommandTree, Invocation } from '../command-tree.js';
import { CliFailure, ExitCode } from '../failure.js';
import { labelOf, parseWorkloadName } from '../names.js';
import { promoteHint, resumeHint } from '../rollout-hints.js';
import { messageJson } from '../session.js';
import type { Session } from '../session.js';
import { rolloutBlock, rolloutLine, versionsText } from '../views/rollout-view.js';
import { withLastLines } from '../wait/wait-workload.js';
import { watchWorkload } from '../wait/watch-workload.js';
import { flagOption, operand, textOption } from './options.js';

/** Interval at which the remaining time is redrawn. */
const REDRAW_MS = 1_000;

/** Adds `rollout status`. */
export function addRolloutStatus(tree: CommandTree, parent: Command): void {
  tree
    .leaf(parent, 'status <name>', 'show the status of a rollout until it ends', status)
    .addOption(
      new Option('--watch <boolean>', 'false: print the current status and exit')
        .choices(['true', 'false'])
        .default('true'),
    )
    .option('--wait-promotion', 'keep waiting while the rollout waits for a promotion')
    .addHelpText(
      'after',
      `
Exits with 0 when the rollout is complete or waits for a promotion, with 8 when it has failed, was rolled back or is paused, and
with 6 when --timeout expires. -o json and yaml print the current status.`,
    );
}

async function status(invocation: Invocation): Promise<number> {
  const { session } = invocation;
  const name = parseWorkloadName(operand(invocation, 0, 'name'), session.settings.namespace);
  const workload = await session.client.getWorkload(name, session.callOptions());
  if (session.structured) {
    await session.printValue(
      messageJson(RolloutStatusSchema, workload.status?.rollout ?? create(RolloutStatusSchema)),
    );
    return endOf(session, workload, false)?.exitCode ?? ExitCode.ok;
  }
  if (textOption(invocation, 'watch') === 'false') {
    await session.print(`${lineOf(workload)}\n`);
    return finish(session, workload, endOf(session, workload, false));
  }
  const [final, end] = await follow(session, workload, flagOption(invocation, 'waitPromotion'));
  return finish(session, final, end);
}

/** The result of a rollout that has ended, or that waits for a user. */
interface End {
  readonly exitCode: number;
  /** Message beside the state; may be empty. */
  readonly text: string;
}

/** Prints each state until the rollout ends. */
async function follow(
  session: Session,
  subject: Workload,
  waitPromotion: boolean,
): Promise<readonly [Workload, End]> {
  const { clock } = session.io;
  let tick: { cancel(): void } | undefined;
  let last = lineOf(subject);
  try {
    return await watchWorkload<readonly [Workload, End]>(session, {
      subject,
      timeoutMs: session.settings.timeoutMs,
      onTimeout: (after) =>
        new CliFailure(ExitCode.timeout, `the rollout is not complete after ${after}: ${last}`),
      look: async (workload, progress) => {
        tick?.cancel();
        if (workload === undefined)
          throw new CliFailure(ExitCode.conflict, `${labelOf(subject)} was deleted while waiting`);
        last = lineOf(workload);
        const draw = async (): Promise<void> => {
          if (!progress.redraws) return progress.show(last);
          await progress.show(
            `${labelOf(workload)}: ${versionsText(workload)}`,
            rolloutBlock(workload, session.nowMs),
          );
          // An error of this write shows up at the next state.
          tick = clock.setTimer(REDRAW_MS, () => void draw().catch(() => undefined));
        };
        await draw();
        const end = endOf(session, workload, waitPromotion);
        return end === undefined ? undefined : [workload, end];
      },
    });
  } finally {
    tick?.cancel();
  }
}

/**
 * Prints the result of the rollout. @returns The exit code. @throws {@link CliFailure} when the
 * rollout did not succeed.
 */
async function finish(session: Session, workload: Workload, end: End | undefined): Promise<number> {
  if (end === undefined) return ExitCode.ok;
  if (end.exitCode !== ExitCode.ok) {
    throw await withLastLines(
      session,
      workload,
      new CliFailure(end.exitCode, `${labelOf(workload)}: ${end.text}`),
    );
  }
  if (end.text !== '') await session.note(end.text);
  return ExitCode.ok;
}

function endOf(session: Session, workload: Workload, waitPromotion: boolean): End | undefined {
  const { status: now, generation } = workload;
  const rollout = now?.rollout;
  if (now === undefined || rollout === undefined || now.observedGeneration < generation)
    return undefined;
  const because = rollout.failure?.reason || rollout.reason;
  const failed = (text: string): End => ({
    exitCode: ExitCode.rolloutFailed,
    text: because === '' ? text : `${text}: ${because}`,
  });
  switch (rollout.phase) {
    case RolloutStatus_Phase.COMPLETED:
      return { exitCode: ExitCode.ok, text: '' };
    case RolloutStatus_Phase.FAILED:
      return failed(`the rollout of version ${rollout.version} failed`);
    case RolloutStatus_Phase.ROLLED_BACK:
      return failed(
        `version ${rollout.failure?.version ?? 0} failed and was rolled back, as version ${rollout.version}`,
      );
    case RolloutStatus_Phase.PAUSED:
      if (rollout.waitsForPromotion && !rollout.pausedByUser) {
        return waitPromotion
          ? undefined
          : { exitCode: ExitCode.ok, text: promoteHint(session, workload) };
      }
      return {
        exitCode: ExitCode.rolloutFailed,
        text: `the rollout is paused${rollout.reason === '' ? '' : `: ${rollout.reason}`}${rollout.pausedByUser ? `; ${resumeHint(session, workload)}` : ''}`,
      };
    default:
      return undefined;
  }
}

const lineOf = (workload: Workload): string => `${labelOf(workload)}: ${rolloutLine(workload)}`;
