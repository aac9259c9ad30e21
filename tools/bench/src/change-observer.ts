import { systemClock } from '@cloudless/app-kit';

/** Interval of the checks for expired waits, milliseconds. */
const CHECK_MS = 1_000;

/** Changes of a watched object as a client observes them. */
export class ChangeObserver {
  /** Time of the last observed change, milliseconds of the system clock. */
  lastChangeAtMs = 0;
  private readonly waiting = new Set<() => void>();
  private failure: unknown;

  /** @param waitLimitMs - Time limit of a wait, milliseconds. */
  constructor(private readonly waitLimitMs: number) {}

  /** Records a change. */
  recordChange(): void {
    this.lastChangeAtMs = systemClock.now();
    this.wakeWaiting();
  }

  /** Ends the observation; all waits fail. */
  endObservation(reason: unknown): void {
    this.failure = reason;
    this.wakeWaiting();
  }

  /**
   * Waits until a condition holds.
   * @param missing - Creates the error message for an expired wait.
   * @returns The time of the last change, which made the condition hold.
   * @throws The reason of {@link endObservation}, or an error when the wait has expired.
   */
  async waitUntil(holds: () => boolean, missing: () => string): Promise<number> {
    const deadline = systemClock.now() + this.waitLimitMs;
    while (!holds()) {
      if (this.failure !== undefined) throw this.failure;
      if (systemClock.now() > deadline) throw new Error(missing());
      await this.waitForChange();
    }
    return this.lastChangeAtMs;
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
      const timer = systemClock.setTimer(CHECK_MS, wake);
      this.waiting.add(wake);
    });
  }
}
