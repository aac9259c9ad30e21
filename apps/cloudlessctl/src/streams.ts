import { sleep } from '@cloudless/base';
import type { Clock } from '@cloudless/base';
import { isTransient, wasCutOff } from './failure.js';

/** How a broken stream is resumed. */
export interface ReconnectOptions {
  readonly clock: Clock;
  readonly signal: AbortSignal;
  /** The stream has no end of its own: an end is a broken connection too. */
  readonly endless: boolean;
  /**
   * The coordinator has answered this command before, so that also the first attempt is repeated.
   * Default false.
   */
  readonly hasAnswered?: boolean;
  /** Whether an error other than a broken connection passes too, once the stream had worked. */
  isPassing?(reason: unknown): boolean;
  /** Told once for each time the connection is lost. */
  onLost(reason: string): Promise<void>;
}

const FIRST_DELAY_MS = 250;
const MAX_DELAY_MS = 5_000;
/**
 * A coordinator that is replaced is back within seconds; after this long without one a person
 * should know.
 */
const GIVE_UP_MS = 60_000;

/**
 * The items of a stream that is opened again whenever the connection breaks after it had worked
 * once.
 * @param open - Opens the stream where the last item left off.
 * @throws what `open` threw, when it is not the connection, at the first attempt, or after a minute
 *   without success.
 */
export async function* reconnecting<Item>(
  open: () => AsyncIterable<Item>,
  options: ReconnectOptions,
): AsyncGenerator<Item> {
  const { clock, signal, endless } = options;
  let worked = options.hasAnswered ?? false;
  let lostAt: number | undefined;
  let delayMs = FIRST_DELAY_MS;
  for (;;) {
    let failure: unknown = new Error('the coordinator ended the stream');
    try {
      for await (const item of open()) {
        worked = true;
        lostAt = undefined;
        delayMs = FIRST_DELAY_MS;
        yield item;
      }
      if (!endless) return;
    } catch (reason) {
      worked ||= wasCutOff(reason);
      const passes = isTransient(reason) || options.isPassing?.(reason) === true;
      if (signal.aborted || !worked || !passes) throw reason;
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

/** A signal that is aborted with `parent`, or after `timeoutMs`. */
export class Deadline {
  private readonly controller = new AbortController();
  readonly signal: AbortSignal;
  private readonly timer: { cancel(): void } | undefined;

  /** @param timeoutMs - Without it only `parent` counts. */
  constructor(clock: Clock, parent: AbortSignal, timeoutMs: number | undefined) {
    this.signal = AbortSignal.any([parent, this.controller.signal]);
    if (timeoutMs !== undefined)
      this.timer = clock.setTimer(timeoutMs, () => this.controller.abort());
  }

  /** Whether the time is over. */
  get passed(): boolean {
    return this.controller.signal.aborted;
  }

  cancel(): void {
    this.timer?.cancel();
  }
}
