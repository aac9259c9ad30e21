import { ConnectError } from '@connectrpc/connect';
import { describeCallFailure, isTransient } from '../call/call-failure.js';
import { CliFailure } from '../call/failure.js';
import type { CliSession } from '../call/cli-session.js';
import { formatCount } from '../output/human.js';

/** The change that {@link changeEach} makes of each subject. */
export interface EachChange<Subject, Result> {
  /** Returns the name of a subject in messages: `workload default/web`. */
  describe(subject: Subject): string;
  /**
   * Changes one subject and prints its status line.
   * @param requestId - Request id of this change; empty without `--request-id`.
   */
  change(subject: Subject, requestId: string): Promise<Result>;
  /** Singular noun of the changes in the message about failures. Default: `change`. */
  readonly noun?: string;
}

/** The results of {@link changeEach}. */
export interface EachResult<Result> {
  /** Results of the changes that succeeded, in the order of the subjects. */
  readonly results: readonly Result[];
  /**
   * Throws the failure of the first change that failed; does nothing when all succeeded. Call this
   * method when the results are printed.
   */
  throwFailure(): void;
}

/**
 * Makes one change of each subject, one after the other. The failure of a change is printed on one
 * line, and the next subjects are still changed. When the coordinator cannot be reached, the
 * subjects that were not changed are named.
 * @throws The failure itself, unchanged, when there is only one subject.
 */
export async function changeEach<Subject, Result>(
  session: CliSession,
  subjects: readonly Subject[],
  { describe, change, noun = 'change' }: EachChange<Subject, Result>,
): Promise<EachResult<Result>> {
  const results: Result[] = [];
  let firstFailure: CliFailure | undefined;
  let failures = 0;
  for (const [index, subject] of subjects.entries()) {
    const name = describe(subject);
    const requestId = session.getRequestId(
      subjects.length > 1 ? name.replace(/^\w+ /, '') : undefined,
    );
    try {
      results.push(await change(subject, requestId));
    } catch (reason) {
      if (subjects.length === 1 || session.io.signal.aborted) throw reason;
      const failure = toFailure(reason, session);
      firstFailure ??= failure;
      failures += 1;
      // Most messages of the coordinator name the subject themselves.
      const isNamed =
        failure.message.startsWith(`${name}: `) ||
        failure.message.includes(`"${name.replace(/^\w+ /, '')}"`);
      await session.printNotice(`cloudlessctl: ${isNamed ? '' : `${name}: `}${failure.message}`);
      const untried = subjects.slice(index + 1);
      if (!isTransient(reason) || untried.length === 0) continue;
      failures += untried.length;
      await session.printNotice(`cloudlessctl: not tried: ${untried.map(describe).join(', ')}`);
      break;
    }
  }
  return {
    results,
    throwFailure: () => {
      if (firstFailure === undefined) return;
      const message = `${failures} of ${formatCount(subjects.length, noun)} failed`;
      throw new CliFailure(firstFailure.exitCode, message);
    },
  };
}

/** @throws `reason` when it is neither an error of a call nor a failure of the command. */
function toFailure(reason: unknown, session: CliSession): CliFailure {
  if (reason instanceof CliFailure) return reason;
  if (reason instanceof ConnectError)
    return describeCallFailure(reason, session.settings, session.nowMs);
  throw reason;
}
