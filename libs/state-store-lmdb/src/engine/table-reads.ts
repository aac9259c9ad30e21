import type { LeaseId, StoredEntry } from '@cloudless/state-store';
import { decodeEntry, decodeHead, hashRecord, type HeadRecord } from './records.js';
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
export function readEntry({ entries }: Tables, key: string): ReadEntry | undefined {
  const keyBytes = Buffer.from(key);
  const record = entries.get(keyBytes);
  if (record === undefined) return undefined;
  const { modRevision, lease, value } = decodeEntry(key, record);
  return new ReadEntry(key, modRevision, lease, value, keyBytes, hashRecord(keyBytes, record));
}

/** An entry that was read, with what its replacement or deletion needs. */
export class ReadEntry implements StoredEntry {
  /**
   * @param keyBytes - The key in the table.
   * @param hash - Hash of the record and its key.
   */
  constructor(
    readonly key: string,
    readonly modRevision: bigint,
    readonly lease: LeaseId | undefined,
    readonly value: Uint8Array,
    readonly keyBytes: Buffer,
    readonly hash: number,
  ) {}
}
