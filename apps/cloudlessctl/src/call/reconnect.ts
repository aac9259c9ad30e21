import { sleep } from '@cloudless/base';
import type { Clock } from '@cloudless/base';
import { isTransient, isServerReset } from './failure.js';

/** Options of {@link withReconnect}. */
export interface ReconnectOptions {
  readonly clock: Clock;
  readonly signal: AbortSignal;
  /**
   * True when the stream never ends by itself, so that an end is treated as a broken connection.
   */
  readonly endless: boolean;
  /**
   * True when the coordinator has answered this command before, so that a failed first attempt is
   * retried. Default: false.
   */
  readonly hasAnswered?: boolean;
  /**
   * Returns true for an error that is retried like a broken connection once the stream has worked.
   */
  isRetriable?(reason: unknown): boolean;
  /** Called once for each loss of the connection. */
  onLost(reason: string): Promise<void>;
}

const FIRST_DELAY_MS = 250;
const MAX_DELAY_MS = 5_000;
/**
 * A restarted coordinator is back within seconds. After this time without a connection the user
 * gets an error.
 */
const GIVE_UP_MS = 60_000;

/**
 * Yields the items of a stream and opens the stream again, with back-off, whenever the connection
 * breaks. The first attempt is not retried unless `hasAnswered` is set.
 * @param open - Opens the stream after the last item.
 * @throws the error of `open` when it is not a connection error, at the first attempt, or after a
 *   minute without a connection.
 */
export async function* withReconnect<Item>(
  open: () => AsyncIterable<Item>,
  options: ReconnectOptions,
): AsyncGenerator<Item> {
  const { clock, signal, endless } = options;
  let hasWorked = options.hasAnswered ?? false;
  let lostAt: number | undefined;
  let delayMs = FIRST_DELAY_MS;
  for (;;) {
    let failure: unknown = new Error('the coordinator ended the stream');
    try {
      for await (const item of open()) {
        hasWorked = true;
        lostAt = undefined;
        delayMs = FIRST_DELAY_MS;
        yield item;
      }
      if (!endless) return;
    } catch (reason) {
      hasWorked ||= isServerReset(reason);
      const isRetried = isTransient(reason) || options.isRetriable?.(reason) === true;
      if (signal.aborted || !hasWorked || !isRetried) throw reason;
      failure = reason;
    }
    if (lostAt === undefined) {
      lostAt = clock.now();
      await options.onLost(failure instanceof Error ? failure.message : String(failure));
    } else if (clock.now() - lostAt >= GIVE_UP_MS) {
      throw failure;
    }
    await sleep(clock, delayMs, signal);
    delayMs = Math.min(MAX_DELAY_MS, delayMs * 2);
  }
}

/** An abort signal that fires with `parent`, or after `timeoutMs`. */
export class Deadline {
  private readonly controller = new AbortController();
  readonly signal: AbortSignal;
  private readonly timer: { cancel(): void } | undefined;

  /** @param timeoutMs - Undefined: no time limit. */
  constructor(clock: Clock, parent: AbortSignal, timeoutMs: number | undefined) {
    this.signal = AbortSignal.any([parent, this.controller.signal]);
    if (timeoutMs !== undefined)
      this.timer = clock.setTimer(timeoutMs, () => this.controller.abort());
  }

  /** True when the time limit has expired. */
  get hasExpired(): boolean {
    return this.controller.signal.aborted;
  }

  cancel(): void {
    this.timer?.cancel();
  }
}
