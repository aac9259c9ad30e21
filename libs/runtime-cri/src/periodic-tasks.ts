import { errorFields, errorKindOf, type Clock, type Log, type Timer } from '@cloudless/base';

/** Runs background tasks periodically until {@link PeriodicTasks.end}. */
export class PeriodicTasks {
  private readonly timers = new Set<Timer>();
  private hasEnded = false;

  constructor(
    private readonly clock: Clock,
    private readonly log: Log,
  ) {}

  /**
   * Runs an action repeatedly: first after `everyMs`, then each time `everyMs` after the previous
   * run has ended. A failed run does not end the repetition. Failures are logged, except failures
   * of kind `unavailable`, which are frequent while the container runtime is down.
   */
  repeat(everyMs: number, action: () => Promise<void>): void {
    if (this.hasEnded) return;
    const timer = this.clock.setTimer(everyMs, () => {
      this.timers.delete(timer);
      void action()
        .catch((reason: unknown) => {
          if (errorKindOf(reason) !== 'unavailable')
            this.log.warn('periodic task failed', errorFields(reason));
        })
        .finally(() => this.repeat(everyMs, action));
    });
    this.timers.add(timer);
  }

  /** Starts no further runs. A run that has begun continues. */
  end(): void {
    this.hasEnded = true;
    for (const timer of this.timers) timer.cancel();
    this.timers.clear();
  }
}
