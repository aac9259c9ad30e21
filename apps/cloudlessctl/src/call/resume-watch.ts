import { Code, ConnectError } from '@connectrpc/connect';
import type { CallOptions } from '@connectrpc/connect';
import { formatSpan } from '../output/human.js';
import { CliFailure, ExitCode } from './failure.js';
import type { CliSession } from './cli-session.js';
import { Deadline, isSlowReaderError, withReconnect } from './reconnect.js';

/** A watch that can be resumed after a revision. */
export interface ResumableWatch<Item> {
  /** Opens the watch after a revision; 0 starts with the current state. */
  open(afterRevision: bigint, options: CallOptions): AsyncIterable<Item>;
  /** The watch starts after this revision. Default: 0, which starts with the current state. */
  readonly from?: bigint;
  /**
   * True when an earlier call of this command has succeeded. Then the first attempt to open the
   * watch is retried too. Default: false.
   */
  readonly hasAnswered?: boolean;
  /** Called when the watch cannot be resumed, before the watch restarts with the current state. */
  onRestart?(): void;
}

/**
 * Yields the items of a watch and resumes the watch whenever the connection breaks, so that no
 * change is missed or repeated. When the history after the last revision is compacted, the watch
 * restarts with the current state.
 */
export async function* resumeWatch<Item extends { readonly revision: bigint }>(
  session: CliSession,
  watch: ResumableWatch<Item>,
  signal: AbortSignal,
): AsyncGenerator<Item> {
  let after = watch.from ?? 0n;
  const open = async function* (): AsyncGenerator<Item> {
    for (;;) {
      try {
        for await (const item of watch.open(after, session.getStreamOptions(signal))) {
          yield item;
          if (item.revision > 0n) after = item.revision;
        }
        return;
      } catch (reason) {
        if (!(reason instanceof ConnectError) || reason.code !== Code.OutOfRange || after === 0n)
          throw reason;
        await session.printNotice(
          `the watch cannot be resumed and restarts from the current state: ${reason.rawMessage}`,
        );
        after = 0n;
        watch.onRestart?.();
      }
    }
  };
  const onLost = (notice: string): Promise<void> => session.printNotice(notice);
  const { hasAnswered = false } = watch;
  yield* withReconnect(open, {
    clock: session.io.clock,
    signal,
    endless: true,
    hasAnswered,
    onLost,
    isRetriable: isSlowReaderError,
  });
}

/**
 * Calls `onItem` for each item of a watch, one after the other, until Ctrl-C or the end of
 * `--timeout`. A watch whose time is up has done its work: the end is a notice, not a failure.
 * @param onEnd - Called once at the end, also after a failure. Default: nothing.
 * @throws {@link CliFailure} with exit code 6 when `--timeout` expires before the first item.
 */
export async function followWatch<Item extends { readonly revision: bigint }>(
  session: CliSession,
  watch: ResumableWatch<Item>,
  onItem: (item: Item) => Promise<void>,
  onEnd: () => Promise<void> = () => Promise.resolve(),
): Promise<void> {
  const { clock, signal } = session.io;
  const { timeoutMs } = session.settings;
  const deadline = new Deadline(clock, signal, timeoutMs);
  let hasItem = watch.hasAnswered ?? false;
  try {
    for await (const item of resumeWatch(session, watch, deadline.signal)) {
      hasItem = true;
      await onItem(item);
    }
  } catch (reason) {
    if (!deadline.hasExpired) throw reason;
    const span = formatSpan(timeoutMs ?? 0);
    if (!hasItem)
      throw new CliFailure(
        ExitCode.timeout,
        `the coordinator at ${session.settings.server} did not answer within ${span} (--timeout)`,
      );
    await session.printNotice(`stopped watching after ${span} (--timeout)`);
  } finally {
    deadline.cancel();
    await onEnd();
  }
}
