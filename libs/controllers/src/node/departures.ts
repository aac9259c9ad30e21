import { durationFromMs, timestampFromMs, timestampMs } from '@bufbuild/protobuf/wkt';
import { create } from '@bufbuild/protobuf';
import { DepartureRecordSchema, type DepartureRecord } from '@cloudless/api/store';
import { toMs } from '../common/duration.js';

/** The departure of an agent that left in good order and is expected to return. */
export interface Departure {
  /** Wall-clock milliseconds at which the agent left. */
  readonly leftAtMs: number;
  /** Milliseconds from then on within which the agent may return. */
  readonly graceMs: number;
  /** Reason that the agent gave. */
  readonly reason: string;
  /**
   * Monotonic milliseconds from which on the agent certainly did not renew the lease: when it left,
   * or, if an earlier coordinator saw that, when this coordinator started.
   */
  readonly sinceMs: number;
  /** True when an earlier coordinator saw the departure; the grace counts from `sinceMs`. */
  readonly restored: boolean;
}

/** Explains a departure to users. */
export function explainDeparture({ leftAtMs, graceMs, reason, restored }: Departure): string {
  const why = reason === '' ? '' : ` (${reason})`;
  const from = restored ? ' of the restart of the coordinator' : '';
  return (
    `the agent left at ${new Date(leftAtMs).toISOString()}${why}; its replicas continue, ` +
    `and are replaced unless the agent returns within ${formatSeconds(graceMs)}${from}`
  );
}

/** Formats milliseconds as seconds with at most one decimal: `60s`. */
export function formatSeconds(durationMs: number): string {
  return `${Math.round(durationMs / 100) / 10}s`;
}

export function toDepartureRecord({ leftAtMs, graceMs, reason }: Departure): DepartureRecord {
  return create(DepartureRecordSchema, {
    leftAt: timestampFromMs(leftAtMs),
    grace: durationFromMs(graceMs),
    reason,
  });
}

/**
 * Restores the departure that an earlier coordinator has recorded. The whole grace begins again: how
 * much of it has passed is known only by wall clocks, which may differ between coordinators.
 * @param nowMs - Monotonic milliseconds.
 */
export function restoreDeparture(record: DepartureRecord, nowMs: number): Departure {
  return {
    leftAtMs: record.leftAt === undefined ? 0 : timestampMs(record.leftAt),
    graceMs: toMs(record.grace),
    reason: record.reason,
    sinceMs: nowMs,
    restored: true,
  };
}
