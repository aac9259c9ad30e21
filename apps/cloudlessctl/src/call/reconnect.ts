import { Code, ConnectError } from '@connectrpc/connect';
import { readErrorDetails, readLeaderHint } from '@cloudless/api';
import { sleep } from '@cloudless/base';
import type { Clock } from '@cloudless/base';
import { isTransient, isServerReset } from './call-failure.js';

/** Options of {@link withReconnect}. */
export interface ReconnectOptions {
  readonly clock: Clock;
  /** Ends the retries. The caller also passes the signal to the calls that `open` makes. */
  readonly signal: AbortSignal;
  /**
   * True for a stream that the coordinator never ends, such as a watch. The end of the stream is
   * then treated as a broken connection.
   */
  readonly endless: boolean;
  /**
   * True when the coordinator has answered this command before, so that a failed first attempt is
   * retried. Default: false.
   */
  readonly hasAnswered?: boolean;
  /**
   * Returns true for a further error that is retried like a broken connection. Default: only
   * connection errors are retried.
   */
  isRetriable?(reason: unknown): boolean;
  /**
   * Called once for each loss of the connection, before the first attempt to reconnect.
   * @param notice - Says that the connection was lost, with the reason if one is known.
   */
  onLost(notice: string): Promise<void>;
}

/** Delay before the first attempt to reconnect. Each further attempt doubles the delay. */
const FIRST_DELAY_MS = 250;
/** Longest delay: a user does not wait much longer than the coordinator needs to start. */
const MAX_DELAY_MS = 5_000;
/**
 * Time without an answer after which the error is thrown. A restarted coordinator answers within
 * seconds. A refusal because of overload is an answer and starts this time anew.
 */
const GIVE_UP_MS = 60_000;

/**
 * Yields the items of a stream and opens the stream again, with back-off, whenever the connection
 * breaks, and after an overload when the coordinator says so. A failed first attempt is retried
 * only when `hasAnswered` is true, when the server had accepted the call, or when no coordinator
 * leads.
 * @param open - Opens the stream. From the second call on, the stream starts after the last item.
 * @throws The error of the stream: at once when the error cannot be retried or `signal` is aborted,
 *   otherwise after a minute without an answer.
 */
export async function* withReconnect<Item>(
  open: () => AsyncIterable<Item>,
  options: ReconnectOptions,
): AsyncGenerator<Item> {
  const { clock, signal, endless } = options;
  let hasWorked = options.hasAnswered ?? false;
  let isLost = false;
  /** Time of the loss, or of a later refusal because of overload. Valid while `isLost`. */
  let answeredAt = 0;
  let delayMs = FIRST_DELAY_MS;
  for (;;) {
    let failure: unknown = new Error('the coordinator ended the stream');
    let overloadMs = 0;
    try {
      for await (const item of open()) {
        hasWorked = true;
        isLost = false;
        delayMs = FIRST_DELAY_MS;
        yield item;
      }
      if (!endless) return;
    } catch (reason) {
      // A coordinator has answered when it says that no coordinator leads.
      hasWorked ||= isServerReset(reason) || readLeaderHint(reason) !== undefined;
      overloadMs = readOverloadMs(reason) ?? 0;
      const isRetried =
        overloadMs > 0 || isTransient(reason) || options.isRetriable?.(reason) === true;
      if (signal.aborted || !hasWorked || !isRetried) throw reason;
      failure = reason;
    }
    if (!isLost || overloadMs > 0) answeredAt = clock.now();
    if (clock.now() - answeredAt >= GIVE_UP_MS) throw failure;
    if (!isLost) await options.onLost(describeLoss(failure));
    isLost = true;
    await sleep(clock, Math.max(delayMs, overloadMs), signal);
    delayMs = Math.min(MAX_DELAY_MS, delayMs * 2);
  }
}

/** Describes a loss. Node.js reports a crash of the server as CANCEL, which is no reason. */
function describeLoss(failure: unknown): string {
  const reason = failure instanceof Error ? failure.message : String(failure);
  const detail = isServerReset(failure) ? '' : ` (${reason})`;
  return `connection to the coordinator lost${detail}, reconnecting`;
}

/**
 * Returns the milliseconds after which an overloaded coordinator wants the next attempt, as after a
 * change of the leader, when all streams are opened again at once; undefined for other errors.
 */
function readOverloadMs(reason: unknown): number | undefined {
  return reason instanceof ConnectError && reason.code === Code.ResourceExhausted
    ? readErrorDetails(reason).retryAfterMs
    : undefined;
}

/**
 * Returns true for the error with which the coordinator ends a stream whose client reads too
 * slowly, for example because `less` shows the output. Watches and logs can be resumed after this
 * error. An error without a reason comes from an older coordinator.
 */
export function isSlowReaderError(reason: unknown): boolean {
  return (
    reason instanceof ConnectError &&
    reason.code === Code.ResourceExhausted &&
    (readErrorDetails(reason).reason ?? 'SLOW_READER') === 'SLOW_READER'
  );
}

/** A time limit as an abort signal. Call {@link cancel} when the work has ended. */
export class Deadline {
  private readonly controller = new AbortController();
  /** Aborted when the parent signal is aborted or when the time limit expires. */
  readonly signal: AbortSignal;
  private readonly timer: { cancel(): void } | undefined;

  /**
   * Starts the time limit.
   * @param timeoutMs - Undefined: no time limit.
   */
  constructor(clock: Clock, parent: AbortSignal, timeoutMs: number | undefined) {
    this.signal = AbortSignal.any([parent, this.controller.signal]);
    if (timeoutMs !== undefined)
      this.timer = clock.setTimer(timeoutMs, () => this.controller.abort());
  }

  /** True when the time limit has expired. */
  get hasExpired(): boolean {
    return this.controller.signal.aborted;
  }

  /** Stops the timer. The signal is then only aborted by the parent. */
  cancel(): void {
    this.timer?.cancel();
  }
}
