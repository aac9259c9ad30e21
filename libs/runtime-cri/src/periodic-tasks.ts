import { errorFields, errorKindOf, type Clock, type Log, type Timer } from '@cloudless/base';

/** Runs background tasks periodically until {@link PeriodicTasks.end}. */
export class PeriodicTasks {
  private readonly timers = new Set<Timer>();
  private isOver = false;

  constructor(
    private readonly clock: Clock,
    private readonly log: Log,
  ) {}

  /**
   * Runs an action repeatedly, each time `everyMs` after the previous run has ended. Failures are
   * logged, except kind `unavailable`, and the action is repeated.
   */
  repeat(everyMs: number, action: () => Promise<void>): void {
    if (this.isOver) return;
    const timer = this.clock.setTimer(everyMs, () => {
      this.timers.delete(timer);
      void action()
        .catch((reason: unknown) => {
          if (errorKindOf(reason) !== 'unavailable')
            this.log.warn('upkeep failed', errorFields(reason));
        })
        .finally(() => this.repeat(everyMs, action));
    });
    this.timers.add(timer);
  }

  /** Starts no further runs. */
  end(): void {
    this.isOver = true;
    for (const timer of this.timers) timer.cancel();
    this.timers.clear();
  }
}
