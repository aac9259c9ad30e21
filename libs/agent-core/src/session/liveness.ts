import { CloudlessError, type Clock, type Timer } from '@cloudless/base';
import type { CoordinatorConnection } from './coordinator-transport.js';

/** How often to ping, and how long to do without an answer, milliseconds. */
export interface LivenessTimes {
  readonly pingIntervalMs: number;
  readonly leaseMs: number;
}

/**
 * Pings over a connection by a timer of its own, and drops it when no ping was answered within the
 * lease. The first goes out at once.
 */
export class Liveness {
  private readonly timer: { current: Timer | undefined } = { current: undefined };
  private lastAnswer: number;
  private stopped = false;

  /**
   * @param onDead - Told once, when the other side has not answered for the lease, or the
   *   connection broke.
   * @param onAnswer - Told when a ping was answered, with the time at which it was sent: the other
   *   side was there then or later.
   */
  constructor(
    private readonly connection: Pick<CoordinatorConnection, 'ping'>,
    private readonly clock: Clock,
    private times: LivenessTimes,
    private readonly onDead: (reason: CloudlessError) => void,
    private readonly onAnswer: (sentAtMs: number) => void = () => undefined,
  ) {
    this.lastAnswer = clock.now();
    this.beat();
  }

  /** Goes on with other times; the next ping comes by the new interval. */
  use(times: LivenessTimes): void {
    this.times = times;
    if (this.stopped) return;
    this.timer.current?.cancel();
    this.schedule();
  }

  /** Pings now instead of at the next interval. */
  hurry(): void {
    this.timer.current?.cancel();
    this.beat();
  }

  stop(): void {
    this.stopped = true;
    this.timer.current?.cancel();
  }

  private beat(): void {
    if (this.stopped) return;
    if (this.clock.now() - this.lastAnswer >= this.times.leaseMs) {
      return this.die(
        new CloudlessError(
          'unavailable',
          `the coordinator answered no ping for ${Math.round(this.times.leaseMs)} ms`,
        ),
      );
    }
    const sentAt = this.clock.now();
    this.connection.ping().then(
      () => {
        this.lastAnswer = this.clock.now();
        if (!this.stopped) this.onAnswer(sentAt);
      },
      (cause: unknown) =>
        this.die(
          new CloudlessError('unavailable', 'the connection to the coordinator broke', { cause }),
        ),
    );
    this.schedule();
  }

  private schedule(): void {
    const untilDead = Math.max(0, this.lastAnswer + this.times.leaseMs - this.clock.now());
    this.timer.current = this.clock.setTimer(Math.min(this.times.pingIntervalMs, untilDead), () =>
      this.beat(),
    );
  }

  private die(reason: CloudlessError): void {
    if (this.stopped) return;
    this.stop();
    this.onDead(reason);
  }
}
