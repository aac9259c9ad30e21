import { create } from '@bufbuild/protobuf';
import { timestampFromMs, timestampMs } from '@bufbuild/protobuf/wkt';
import { SlotBackoffSchema, type ControlRecord } from '@cloudless/api/store';
import { backoffDelayMs, type BackoffPolicy } from '@cloudless/base';

/** Delays before a replacement: none, then 1 s, 2 s, 4 s, up to 5 minutes. */
const POLICY: BackoffPolicy = { firstMs: 1_000, maxMs: 300_000 };
/**
 * A replica that was ready for this long did not fail at its start: its failure counts as the
 * first.
 */
const RESET_AFTER_READY_MS = 600_000;

/**
 * The back-off of each slot of a workload. Kept in the control record, so that a restart of the
 * coordinator resets nothing.
 */
export class SlotBackoffs {
  /** @param control - Changed in place. */
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
   * Milliseconds until the slot may be filled again, at most 5 minutes even when the clock was set
   * back.
   */
  getWaitMs(slot: number): number {
    const notBefore = this.control.backoff[slot]?.notBefore;
    if (notBefore === undefined) return 0;
    return Math.min(POLICY.maxMs, Math.max(0, timestampMs(notBefore) - this.wallTimeMs));
  }
}
