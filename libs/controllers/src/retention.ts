import { Event_Category as Category, type Event } from '@cloudless/api';

/** How long, and up to how many bytes, the store keeps records that only document the past. */
export interface RetentionLimits {
  /** Time that events other than audit records are kept, milliseconds. */
  readonly eventMs: number;
  /** Bytes that events other than audit records take. */
  readonly eventBytes: number;
  /** Time that audit records are kept, milliseconds. */
  readonly auditMs: number;
  /** Bytes that audit records take. */
  readonly auditBytes: number;
  /** Bytes that the results of requests with a request id take. They are kept for an hour. */
  readonly requestBytes: number;
}

const MIB = 1024 * 1024;
const DAY_MS = 24 * 3_600_000;

/**
 * Enough for about 12 000 events and 50 000 audit records of 330 bytes, and 65 000 request results
 * of 1 KiB.
 */
export const DEFAULT_RETENTION: RetentionLimits = {
  eventMs: 30 * DAY_MS,
  eventBytes: 4 * MIB,
  auditMs: 30 * DAY_MS,
  auditBytes: 16 * MIB,
  requestBytes: 64 * MIB,
};

/** A record that may be deleted. */
export interface RemovableRecord {
  readonly id: string;
  /** The share of the bytes that the record counts against: see {@link planRemovals}. */
  readonly share: string;
  readonly bytes: number;
  /** When the record was written, wall-clock milliseconds; undefined when unknown. */
  readonly atMs: number | undefined;
}

/**
 * Decides which records to delete: first all that are older than `maxMs`, then as many as exceed
 * `maxBytes`. The oldest record of the largest share goes first, so that a small share loses
 * nothing however much others write.
 * @param records - Oldest first.
 * @returns The records to delete, oldest first.
 */
export function planRemovals<Record extends RemovableRecord>(
  records: readonly Record[],
  limits: { readonly maxMs: number; readonly maxBytes: number },
  nowMs: number,
): readonly Record[] {
  const isExpired = ({ atMs }: Record): boolean =>
    atMs === undefined || nowMs - atMs > limits.maxMs;
  const removed = new Set<Record>();
  const shares = new Map<string, { readonly records: Record[]; bytes: number; next: number }>();
  let total = 0;
  for (const record of records) {
    if (isExpired(record)) {
      removed.add(record);
      continue;
    }
    const share = shares.get(record.share) ?? { records: [], bytes: 0, next: 0 };
    share.records.push(record);
    share.bytes += record.bytes;
    total += record.bytes;
    shares.set(record.share, share);
  }
  while (total > limits.maxBytes) {
    const largest = [...shares.values()].reduce((most, share) =>
      share.bytes > most.bytes ? share : most,
    );
    const oldest = largest.records[largest.next];
    if (oldest === undefined) break;
    removed.add(oldest);
    largest.next += 1;
    largest.bytes -= oldest.bytes;
    total -= oldest.bytes;
  }
  return records.filter((record) => removed.has(record));
}

/**
 * The share that an event counts against: caller and method for audit records, the category for
 * other events.
 */
export function toShare({ audit, category }: Event): string {
  return audit === undefined
    ? `category ${category}`
    : `${audit.principal} ${audit.address} ${audit.rpc}`;
}

/** Tells whether an event is an audit record. Audit records have limits of their own. */
export function isAudit({ category }: Pick<Event, 'category'>): boolean {
  return category === Category.AUDIT;
}
