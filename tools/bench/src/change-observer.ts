import { systemClock } from '@cloudless/app-kit';

/** Interval of the checks for expired waits, milliseconds. */
const LOOK_MS = 1_000;

/** Changes of a watched object as a client observes them. */
export class ChangeObserver {
  /** Time of the last observed change. */
  atMs = 0;
  private readonly waiting = new Set<() => void>();
  private failure: unknown;

  /** @param giveUpMs - Time limit of a wait, milliseconds. */
  constructor(private readonly giveUpMs: number) {}

  /** Records a change. */
  recordChange(): void {
    this.atMs = systemClock.now();
    this.wakeWaiting();
  }

  /** Ends the observation; all waits fail. */
  endObservation(reason: unknown): void {
    this.failure = reason;
    this.wakeWaiting();
  }

  /**
   * Resolves when a condition holds, with the time of the change that made it hold.
   * @param missing - Creates the error message for an expired wait.
   */
  async waitUntil(holds: () => boolean, missing: () => string): Promise<number> {
    const gaveUp = systemClock.now() + this.giveUpMs;
    while (!holds()) {
      if (this.failure !== undefined) throw this.failure;
      if (systemClock.now() > gaveUp) throw new Error(missing());
      await this.waitForChange();
    }
    return this.atMs;
  }

  private wakeWaiting(): void {
    for (const wake of [...this.waiting]) wake();
  }

  /** Resolves at the next change, or after a second. */
  private waitForChange(): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        timer.cancel();
        this.waiting.delete(wake);
        resolve();
      };
      const timer = systemClock.setTimer(LOOK_MS, wake);
      this.waiting.add(wake);
    });
  }
}
