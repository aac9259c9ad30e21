import { systemClock } from '@cloudless/system';

/** How often it is looked whether somebody waits for too long, milliseconds. */
const LOOK_MS = 1_000;

/**
 * What a client sees of something it follows: when it last saw it change, and whether it can see it
 * still.
 */
export class Sightings {
  /** When it was last seen to change. */
  atMs = 0;
  private readonly waiting = new Set<() => void>();
  private failure: unknown;

  /** @param giveUpMs - What takes longer has failed. */
  constructor(private readonly giveUpMs: number) {}

  /** It has changed. */
  seen(): void {
    this.atMs = systemClock.now();
    this.wakeAll();
  }

  /** It is seen no more: all who wait fail. */
  fail(reason: unknown): void {
    this.failure = reason;
    this.wakeAll();
  }

  /**
   * Resolves once it holds, with the time of the sighting that showed it.
   * @param missing - What is to be said when it does not in time.
   */
  async until(holds: () => boolean, missing: () => string): Promise<number> {
    const gaveUp = systemClock.now() + this.giveUpMs;
    while (!holds()) {
      if (this.failure !== undefined) throw this.failure;
      if (systemClock.now() > gaveUp) throw new Error(missing());
      await this.change();
    }
    return this.atMs;
  }

  private wakeAll(): void {
    for (const wake of [...this.waiting]) wake();
  }

  /** The next change, or a second. */
  private change(): Promise<void> {
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
