import { create } from '@bufbuild/protobuf';
import { timestampFromMs, timestampMs } from '@bufbuild/protobuf/wkt';
import { SlotBackoffSchema, type ControlRecord } from '@cloudless/api/store';
import { backoffDelayMs, type BackoffPolicy } from '@cloudless/base';

/** The first replacement comes at once, then 1 s, 2 s, 4 s … 5 min. */
const POLICY: BackoffPolicy = { firstMs: 1_000, maxMs: 300_000 };
/** A replica that was ready this long had not failed at its start: the count begins anew. */
const RESET_AFTER_READY_MS = 600_000;

/**
 * When the next replica of each slot may be created. Kept in the control record, so that a restart
 * forgets nothing.
 */
export class SlotBackoffs {
  /** @param control - Changed in place. */
  constructor(
    private readonly control: ControlRecord,
    private readonly wallTimeMs: number,
  ) {}

  /** Counts a failure. @param readyForMs - How long the replica had been ready at last. */
  failed(slot: number, readyForMs: number): void {
    const failures =
      (readyForMs >= RESET_AFTER_READY_MS ? 0 : (this.control.backoff[slot]?.failures ?? 0)) + 1;
    const notBefore = timestampFromMs(this.wallTimeMs + backoffDelayMs(POLICY, failures - 1));
    this.control.backoff[slot] = create(SlotBackoffSchema, { failures, notBefore });
  }

  /**
   * Milliseconds until the slot may be filled again; a clock that went back never makes it longer
   * than the longest delay.
   */
  waitMs(slot: number): number {
    const notBefore = this.control.backoff[slot]?.notBefore;
    if (notBefore === undefined) return 0;
    return Math.min(POLICY.maxMs, Math.max(0, timestampMs(notBefore) - this.wallTimeMs));
  }
}
