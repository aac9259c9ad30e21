import { sleep, type Clock } from '@cloudless/base';

/** Delay between two turns of a {@link SupervisorMonitor}, milliseconds. */
export const MONITOR_INTERVAL_MS = 1_000;

/**
 * Measures for how long a supervisor has not answered. A supervisor that hangs keeps its connection
 * open, so only a missing answer reveals the hang.
 */
export class SupervisorMonitor {
  private isWaiting = false;
  private hasFailed = false;
  private silentTurns = 0;

  /**
   * @param ping - Makes a call that the supervisor answers at once. Rejects when there is no answer,
   *   as the connection has closed or cannot be opened.
   */
  constructor(
    private readonly clock: Clock,
    private readonly ping: () => Promise<void>,
  ) {}

  /**
   * Milliseconds without an answer; 0 while the supervisor answers. Counts the turns of this monitor
   * instead of the time, so that a process that itself stood still does not blame the supervisor.
   */
  get silentMs(): number {
    return this.silentTurns * MONITOR_INTERVAL_MS;
  }

  /** Makes a call every {@link MONITOR_INTERVAL_MS}, one at a time, until `signal` is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await sleep(this.clock, MONITOR_INTERVAL_MS, signal).catch(() => undefined);
      if (!signal.aborted) this.turn();
    }
  }

  /** Call it when a supervisor has answered in another way, such as a new one with its hello. */
  noteAnswer(): void {
    this.hasFailed = false;
    this.silentTurns = 0;
  }

  private turn(): void {
    if (this.isWaiting || this.hasFailed) this.silentTurns += 1;
    if (this.isWaiting) return;
    this.isWaiting = true;
    this.ping().then(
      () => this.finish(false),
      () => this.finish(true),
    );
  }

  private finish(hasFailed: boolean): void {
    this.isWaiting = false;
    this.hasFailed = hasFailed;
    if (!hasFailed) this.silentTurns = 0;
  }
}
