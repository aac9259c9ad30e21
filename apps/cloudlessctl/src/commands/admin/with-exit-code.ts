import { toCode } from '@cloudless/api';
import { CloudlessError } from '@cloudless/base';
import { toExitCode } from '../../call/call-failure.js';
import { CliFailure } from '../../call/failure.js';

/**
 * Runs a local action. An error of the action gets the exit code that an error of the same kind has
 * when the coordinator sends it.
 * @param file - Name to put before an error message that does not contain it.
 */
export async function withExitCode<Result>(
  action: () => Promise<Result>,
  file?: string,
): Promise<Result> {
  try {
    return await action();
  } catch (reason) {
    if (!(reason instanceof CloudlessError)) throw reason;
    const prefix = file === undefined || reason.message.includes(file) ? '' : `${file}: `;
    throw new CliFailure(
      toExitCode(toCode(reason.kind), reason.reason),
      `${prefix}${reason.message}`,
      {
        cause: reason,
      },
    );
  }
}
