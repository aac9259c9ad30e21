import { Code, ConnectError } from '@connectrpc/connect';
import type { CallOptions } from '@connectrpc/connect';
import { CliFailure, ExitCode } from './failure.js';
import { formatSpan } from './output/human.js';
import type { Session } from './session.js';
import { Deadline, reconnecting } from './streams.js';

/** A watch that is resumed where it broke off. */
export interface ResumedWatch<Item> {
  /** Opens the watch; 0: from the present state. */
  open(afterRevision: bigint, options: CallOptions): AsyncIterable<Item>;
  /** Where to begin; default: with the present state. */
  readonly from?: bigint;
  /**
   * The coordinator has answered this command before: when it cannot be reached now, it will be
   * again. Default false.
   */
  readonly hasAnswered?: boolean;
  /** Told when the coordinator cannot resume, before the watch begins anew. */
  onAnew?(): void;
}

/**
 * The items of a watch that is resumed whenever it breaks, so that no change is missed and none is
 * sent again for nothing. When the coordinator does not know any more what has changed since, it
 * begins anew.
 */
export async function* resumedWatch<Item extends { readonly revision: bigint }>(
  session: Session,
  watch: ResumedWatch<Item>,
  signal: AbortSignal,
): AsyncGenerator<Item> {
  let after = watch.from ?? 0n;
  const open = async function* (): AsyncGenerator<Item> {
    for (;;) {
      try {
        for await (const item of watch.open(after, session.streamOptions(signal))) {
          yield item;
          if (item.revision > 0n) after = item.revision;
        }
        return;
      } catch (reason) {
        if (!(reason instanceof ConnectError) || reason.code !== Code.OutOfRange || after === 0n)
          throw reason;
        await session.note(`the watch cannot be resumed and begins anew: ${reason.rawMessage}`);
        after = 0n;
        watch.onAnew?.();
      }
    }
  };
  const onLost = (reason: string): Promise<void> =>
    session.note(`the connection was lost (${reason}), connecting again`);
  const { hasAnswered = false } = watch;
  yield* reconnecting(open, {
    clock: session.io.clock,
    signal,
    endless: true,
    hasAnswered,
    onLost,
    isPassing: isCutForSlowness,
  });
}

/** A reader that was too slow, as `less` makes one, is told to resume. */
function isCutForSlowness(reason: unknown): boolean {
  return reason instanceof ConnectError && reason.code === Code.ResourceExhausted;
}

/** Follows a watch until Ctrl-C, or until `--timeout` is over, which ends with exit code 6. */
export async function followWatch<Item extends { readonly revision: bigint }>(
  session: Session,
  watch: ResumedWatch<Item>,
  take: (item: Item) => Promise<void>,
): Promise<void> {
  const { clock, signal } = session.io;
  const { timeoutMs } = session.settings;
  const deadline = new Deadline(clock, signal, timeoutMs);
  try {
    for await (const item of resumedWatch(session, watch, deadline.signal)) await take(item);
  } catch (reason) {
    if (deadline.passed)
      throw new CliFailure(ExitCode.timeout, `watched for ${formatSpan(timeoutMs ?? 0)}`);
    throw reason;
  } finally {
    deadline.cancel();
  }
}
