import { errorFields, errorKindOf, type Clock, type Log, type Timer } from '@cloudless/base';

/** What is done again and again, until its end. */
export class Upkeep {
  private readonly timers = new Set<Timer>();
  private isOver = false;

  constructor(
    private readonly clock: Clock,
    private readonly log: Log,
  ) {}

  /** One turn of an action at a time, `everyMs` after the one before. What fails is done again. */
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

  /** No further turn begins. */
  end(): void {
    this.isOver = true;
    for (const timer of this.timers) timer.cancel();
    this.timers.clear();
  }
}
