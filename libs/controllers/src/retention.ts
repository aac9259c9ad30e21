import { Event_Category as Category, type Event } from '@cloudless/api';

/** Limits of the time and the bytes for which the store keeps records of the past. */
export interface RetentionLimits {
  /** Milliseconds for which events other than audit records are kept. */
  readonly eventMs: number;
  /** Most bytes of all events other than audit records. */
  readonly eventBytes: number;
  /** Milliseconds for which audit records are kept. */
  readonly auditMs: number;
  /** Most bytes of all audit records. */
  readonly auditBytes: number;
  /** Most bytes of all results of requests with a request id. Results are kept for an hour. */
  readonly requestBytes: number;
}

const MIB = 1024 * 1024;
const DAY_MS = 24 * 3_600_000;

/**
 * The default: enough for about 12 000 events and 50 000 audit records of 330 bytes each, and about
 * 65 000 request results of 1 KiB.
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
  /** Name of the share of the bytes that the record counts against, see {@link planRemovals}. */
  readonly share: string;
  readonly bytes: number;
  /** When the record was written, wall-clock milliseconds; undefined when unknown. */
  readonly atMs: number | undefined;
}

/**
 * Decides which records to delete: first all records that are older than `maxMs` or have no time,
 * then as many records as exceed `maxBytes`. The oldest record of the largest share is deleted
 * first, so that a small share loses no record however much the other shares grow.
 * @param records - Oldest first.
 * @param nowMs - Wall-clock milliseconds.
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
    const largest = [...shares.values()].reduce((maximum, share) =>
      share.bytes > maximum.bytes ? share : maximum,
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
 * Returns the share that an event counts against: for an audit record its caller, address and
 * method, for another event its category. Callers without an identity have one share for each
 * method, because a stranger may have any number of addresses.
 */
export function toShare({ audit, category }: Event): string {
  if (audit === undefined) return `category ${category}`;
  const { principal, address, rpc } = audit;
  return principal === 'unauthenticated' ? `${principal} ${rpc}` : `${principal} ${address} ${rpc}`;
}

/** Returns true for an audit record. Audit records have limits of their own. */
export function isAudit({ category }: Pick<Event, 'category'>): boolean {
  return category === Category.AUDIT;
}
