import { create } from '@bufbuild/protobuf';
import { timestampFromMs, timestampMs } from '@bufbuild/protobuf/wkt';
import { SlotBackoffSchema, type ControlRecord } from '@cloudless/api/store';
import { backoffDelayMs, type BackoffPolicy } from '@cloudless/base';

/**
 * Delays before a replacement: none after the first failure, then 1 s, 2 s, 4 s, up to 5 minutes.
 */
const POLICY: BackoffPolicy = { firstMs: 1_000, maxMs: 300_000 };
/**
 * Milliseconds after which a ready replica did not fail because of its start: its failure counts as
 * the first failure of the slot.
 */
const RESET_AFTER_READY_MS = 600_000;

/**
 * The back-off of each slot of a workload. The failures are kept in the control record, so that
 * they survive a restart of the coordinator.
 */
export class SlotBackoffs {
  /**
   * @param control - Changed in place by {@link recordFailure}.
   * @param wallTimeMs - The current time, in wall-clock milliseconds.
   */
  constructor(
    private readonly control: ControlRecord,
    private readonly wallTimeMs: number,
  ) {}

  /**
   * Counts a failure of a slot.
   * @param readyForMs - For how long the failed replica was ready, milliseconds.
   */
  recordFailure(slot: number, readyForMs: number): void {
    const failures =
      (readyForMs >= RESET_AFTER_READY_MS ? 0 : (this.control.backoff[slot]?.failures ?? 0)) + 1;
    const notBefore = timestampFromMs(this.wallTimeMs + backoffDelayMs(POLICY, failures - 1));
    this.control.backoff[slot] = create(SlotBackoffSchema, { failures, notBefore });
  }

  /**
   * Returns the milliseconds until the slot may be filled again; 0 without a back-off. A failure
   * that lies in the future delays nothing: this clock was set back, or is behind the clock of an
   * earlier leader, and would reach the end of the back-off too late.
   */
  getWaitMs(slot: number): number {
    const backoff = this.control.backoff[slot];
    if (backoff?.notBefore === undefined) return 0;
    const waitMs = timestampMs(backoff.notBefore) - this.wallTimeMs;
    const delayMs = backoffDelayMs(POLICY, backoff.failures - 1);
    return waitMs > delayMs ? 0 : Math.max(0, waitMs);
  }
}
