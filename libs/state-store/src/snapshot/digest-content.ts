import { createHash } from 'node:crypto';
import type { StateStore, StoreEntry } from '../state-store.js';

/** Number and checksum of the entries of a store, independent of revisions and of the engine. */
export interface ContentDigest {
  /** Number of entries without a lease. */
  readonly entries: number;
  /** SHA-256 of all keys and values in key order, in hexadecimal. */
  readonly sha256: string;
}

/** Entries of a page. Bounds the memory of a read of large values. */
const PAGE_ENTRIES = 200;

/**
 * Reads the whole store at one revision, and computes a checksum of its content. Omits entries on a
 * lease, as backups do. Two stores with equal digests have the same keys and values.
 */
export async function digestContent(store: Pick<StateStore, 'range'>): Promise<ContentDigest> {
  const hash = createHash('sha256');
  let entries = 0;
  const add = ({ key, value }: StoreEntry): void => {
    const encodedKey = Buffer.from(key);
    const lengths = Buffer.alloc(8);
    lengths.writeUInt32BE(encodedKey.length, 0);
    lengths.writeUInt32BE(value.byteLength, 4);
    hash.update(lengths).update(encodedKey).update(value);
    entries += 1;
  };
  let page = await store.range({ prefix: '', limit: PAGE_ENTRIES });
  const { revision } = page;
  for (;;) {
    for (const entry of page.entries) if (entry.lease === undefined) add(entry);
    if (page.next === undefined) return { entries, sha256: hash.digest('hex') };
    page = await store.range({ prefix: '', after: page.next, limit: PAGE_ENTRIES, revision });
  }
}
