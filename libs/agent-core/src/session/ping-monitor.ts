import { CloudlessError, type Clock, type Timer } from '@cloudless/base';
import type { CoordinatorConnection } from './coordinator-transport.js';

/** Ping interval, and time without an answer after which the connection counts as lost. */
export interface PingTimes {
  readonly pingIntervalMs: number;
  readonly leaseMs: number;
}

/**
 * Pings a connection periodically, independent of other messages, and reports the connection as
 * lost when no ping was answered within the lease. Sends the first ping at once. At most one ping
 * waits for its answer: a ping that is due meanwhile is sent at the answer, so that a slow
 * coordinator gets no queue of pings.
 */
export class PingMonitor {
  private readonly timer: { current: Timer | undefined } = { current: undefined };
  private lastAnswerMs: number;
  private isOutstanding = false;
  /** True when a ping became due while another one waited for its answer. */
  private isDue = false;
  private stopped = false;

  /**
   * @param onLost - Called once, when no ping was answered within the lease (`isSilent`) or the
   *   connection broke.
   * @param onAnswer - Called when a ping was answered, with its send time on the monotonic clock:
   *   the coordinator was reachable at that time or later.
   */
  constructor(
    private readonly connection: Pick<CoordinatorConnection, 'ping'>,
    private readonly clock: Clock,
    private times: PingTimes,
    private readonly onLost: (reason: CloudlessError, isSilent: boolean) => void,
    private readonly onAnswer: (sentAtMs: number) => void = () => undefined,
  ) {
    this.lastAnswerMs = clock.now();
    this.ping();
  }

  /** Changes the times. The next ping follows the new interval. */
  setTimes(times: PingTimes): void {
    this.times = times;
    if (this.stopped) return;
    this.timer.current?.cancel();
    this.schedule();
  }

  /** Sends a ping now instead of at the next interval, or at the answer to an outstanding ping. */
  pingNow(): void {
    this.timer.current?.cancel();
    this.ping();
  }

  /** Ends the pings; no callback is called any more. */
  stop(): void {
    this.stopped = true;
    this.timer.current?.cancel();
  }

  private ping(): void {
    if (this.stopped) return;
    if (this.clock.now() - this.lastAnswerMs >= this.times.leaseMs) {
      return this.fail(
        new CloudlessError(
          'unavailable',
          `the coordinator answered no ping for ${Math.round(this.times.leaseMs)} ms`,
        ),
        true,
      );
    }
    if (this.isOutstanding) this.isDue = true;
    else this.send();
    this.schedule();
  }

  private send(): void {
    const sentAtMs = this.clock.now();
    this.isOutstanding = true;
    this.isDue = false;
    this.connection.ping().then(
      () => {
        this.isOutstanding = false;
        this.lastAnswerMs = this.clock.now();
        if (this.stopped) return;
        this.onAnswer(sentAtMs);
        if (this.isDue) this.pingNow();
      },
      (cause: unknown) =>
        this.fail(
          new CloudlessError('unavailable', 'the connection to the coordinator broke', { cause }),
          false,
        ),
    );
  }

  private schedule(): void {
    const untilLostMs = Math.max(0, this.lastAnswerMs + this.times.leaseMs - this.clock.now());
    const delayMs = Math.min(this.times.pingIntervalMs, untilLostMs);
    const dueMs = this.clock.now() + delayMs;
    this.timer.current = this.clock.setTimer(delayMs, () => {
      // No answer could be received while this loop stood still.
      const now = this.clock.now();
      this.lastAnswerMs = Math.min(now, this.lastAnswerMs + Math.max(0, now - dueMs));
      this.ping();
    });
  }

  private fail(reason: CloudlessError, isSilent: boolean): void {
    if (this.stopped) return;
    this.stop();
    this.onLost(reason, isSilent);
  }
}
