import type { CallReading } from './store-call-marks.js';

/**
 * Longest time between two looks that counts. A process that stood still as a whole (SIGSTOP, a
 * paused machine) had no chance to see a call return, so the rest of a longer time does not count.
 */
const MAX_STEP_MS = 1_000;

/**
 * Measures for how long the pending calls of one sort have not returned. Many calls may wait in a
 * queue for longer than any limit: as long as one after the other returns, nothing stalls.
 */
export class StallDetector {
  private stalledMs = 0;
  private progress = 0;

  /**
   * @param elapsedMs - Time since the previous look.
   * @param isBusy - True: the main thread computed since the previous look and took no results, so
   *   that a call may have returned without a mark. The time does not count.
   * @returns Time for which no pending call has returned, milliseconds; 0 when none is pending.
   */
  observe({ pending, progress }: CallReading, elapsedMs: number, isBusy = false): number {
    const isStalled = pending > 0 && progress === this.progress;
    const addedMs = isBusy ? 0 : Math.min(elapsedMs, MAX_STEP_MS);
    this.stalledMs = isStalled ? this.stalledMs + addedMs : 0;
    this.progress = progress;
    return this.stalledMs;
  }
}
