import type { HistorySegment, StoredEntry } from '@cloudless/state-store';
import { decodeEntry, decodeHead, decodeSegmentKey, getSpace, type HeadRecord } from './records.js';
import type { Tables } from './tables.js';

/** Key of the counters in the `meta` table. */
export const HEAD_KEY = Buffer.from('head');

/** Reads the counters in the current LMDB transaction; all are 0 in a new store. */
export function readHead({ meta }: Tables): HeadRecord {
  const record = meta.get(HEAD_KEY);
  return record === undefined
    ? { revision: 0n, compactedRevision: 0n, leaseCount: 0, hashSum: 0 }
    : decodeHead(record);
}

/** Reads an entry in the current LMDB transaction; undefined for an unknown key. */
export function readEntry({ entries }: Tables, key: string): StoredEntry | undefined {
  const record = entries.get(Buffer.from(key));
  return record === undefined ? undefined : decodeEntry(key, record);
}

/** Reads the keys of the retained history segments, oldest first. */
export function readSegments({ history }: Tables): HistorySegment[] {
  return [
    ...history
      .getRange()
      .map(({ key, value }) => ({ ...decodeSegmentKey(key), bytes: getSpace(value.length) })),
  ];
}
