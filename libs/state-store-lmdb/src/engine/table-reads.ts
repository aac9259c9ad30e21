import type { LeaseId, StoredEntry } from '@cloudless/state-store';
import { encodeKey } from './entry-key.js';
import { decodeHead, EntryHeadReader, type HeadRecord } from './records.js';
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

const entryHead = new EntryHeadReader();

/**
 * Reads an entry in the current LMDB transaction; undefined for an unknown key.
 * @throws kind `internal` when the checksum of the record does not match.
 */
export function readEntry({ entries }: Tables, key: string): ReadEntry | undefined {
  const keyBytes = encodeKey(key);
  // Valid until the next read: LMDB reads all records into one buffer.
  const record = entries.getBinaryFast(keyBytes);
  if (record === undefined) return undefined;
  const { length } = record;
  entryHead.read(keyBytes, 0, keyBytes.length, record, 0, length);
  const { modRevision, lease, hash, valueStart } = entryHead;
  const value = new Uint8Array(length - valueStart);
  record.copy(value, 0, valueStart, length);
  return new ReadEntry(key, modRevision, lease, value, hash);
}

/** Returns the first key after `key`, in the current LMDB transaction; undefined for none. */
export function readNextKey({ entries }: Tables, key: string): string | undefined {
  // The shortest key that sorts after `key` has one zero byte more.
  const [next] = entries.getKeys({ start: Buffer.from(`${key}\0`), limit: 1 });
  return next?.toString('utf8');
}

/** An entry that was read, with what its replacement or deletion needs. */
export class ReadEntry implements StoredEntry {
  /** @param hash - Hash of the record and its key. */
  constructor(
    readonly key: string,
    readonly modRevision: bigint,
    readonly lease: LeaseId | undefined,
    readonly value: Uint8Array,
    readonly hash: number,
  ) {}
}
