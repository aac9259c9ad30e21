import { CliFailure, ExitCode } from '../../call/failure.js';
import type { LocalInvocation } from '../../command-tree.js';
import { askUser, canAsk } from '../ask-user.js';
import { hasFlag } from '../options.js';

/**
 * Asks on a terminal before a change whose effect the user has seen. Elsewhere the change is made.
 * @throws {@link CliFailure} with exit code 9 when the user declines.
 */
export async function confirmOnTerminal(
  invocation: LocalInvocation,
  question: string,
): Promise<void> {
  const { io } = invocation.session;
  if (hasFlag(invocation, 'yes') || !canAsk(io)) return;
  if (await askUser(io, question)) return;
  throw new CliFailure(ExitCode.notConfirmed, 'nothing was changed');
}

/**
 * Asks before a change that loses values. Without a terminal, `--yes` is needed.
 * @param loss - What is lost, for the refusal without a terminal.
 * @throws {@link CliFailure} with exit code 9 when the user declines or cannot be asked.
 */
export async function confirmLoss(
  invocation: LocalInvocation,
  question: string,
  loss: string,
): Promise<void> {
  const { io } = invocation.session;
  if (hasFlag(invocation, 'yes')) return;
  if (!canAsk(io))
    throw new CliFailure(
      ExitCode.notConfirmed,
      `nothing was changed: ${loss}; to make the change anyway, use --yes`,
    );
  if (await askUser(io, question)) return;
  throw new CliFailure(ExitCode.notConfirmed, 'nothing was changed');
}
