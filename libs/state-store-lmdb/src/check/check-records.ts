import { errorMessageOf } from '@cloudless/base';
import type { Revision } from '@cloudless/state-store';
import { encodeLeasedKey } from '../engine/leased-key.js';
import {
  addHashes,
  decodeEntryHead,
  decodeLease,
  decodeSegmentHeads,
  decodeSegmentKey,
  hashRecord,
} from '../engine/records.js';
import { readHead } from '../engine/table-reads.js';
import type { Tables } from '../engine/tables.js';
import { createDamageError } from './page-file.js';

/**
 * Reads every record once, to find altered, missing, outdated and duplicate records when the store
 * is opened instead of at their first use. Takes a few seconds per GiB.
 * @param file - Path of the data file, for the error.
 * @throws kind `precondition` with the message that the data file is damaged.
 */
export function checkRecords(tables: Tables, file: string): void {
  try {
    const head = readHead(tables);
    const hashSum = addHashes(hashLeases(tables), hashEntries(tables, head.revision));
    if (hashSum !== head.hashSum) throw new Error('its entries are not those of the last commit');
    checkHistory(tables, head.compactedRevision, head.revision);
  } catch (cause) {
    throw createDamageError(file, `its records are inconsistent (${errorMessageOf(cause)})`, cause);
  }
}

/** Returns the sum of the hashes of all leases. */
function hashLeases({ leases }: Tables): number {
  let hashSum = 0;
  for (const { key, value } of leases.getRange()) {
    decodeLease(value);
    hashSum = addHashes(hashSum, hashRecord(key, value));
  }
  return hashSum;
}

/** Returns the sum of the hashes of all entries. Checks that `leasedKeys` has their leased keys. */
function hashEntries({ entries, leases, leasedKeys }: Tables, newest: Revision): number {
  let hashSum = 0;
  let leasedCount = 0;
  for (const { key, value } of entries.getRange()) {
    const { modRevision, lease } = decodeEntryHead(value);
    if (modRevision > newest)
      throw new Error(`an entry is of revision ${modRevision}, after ${newest}`);
    hashSum = addHashes(hashSum, hashRecord(key, value));
    if (lease === undefined) continue;
    leasedCount += 1;
    if (
      !leases.doesExist(Buffer.from(lease)) ||
      !leasedKeys.doesExist(encodeLeasedKey(lease, key.toString('utf8')))
    )
      throw new Error('an entry is on a lease that does not have its key');
  }
  if (leasedKeys.getKeysCount() !== leasedCount)
    throw new Error('a lease has a key without an entry');
  return hashSum;
}

/** Checks that the history has every revision after `compacted`, up to `newest`, exactly once. */
function checkHistory({ history }: Tables, compacted: Revision, newest: Revision): void {
  let expected = compacted + 1n;
  for (const { key, value } of history.getRange()) {
    const segment = decodeSegmentKey(key);
    let changes = 0;
    if (segment.first !== expected)
      throw new Error(`revision ${expected} is missing from the history`);
    for (const transaction of decodeSegmentHeads(value)) {
      if (transaction.revision !== expected)
        throw new Error(`revision ${expected} is missing from the history`);
      changes += transaction.changes;
      expected += 1n;
    }
    if (segment.last !== expected - 1n || segment.changes !== changes)
      throw new Error('a segment of the history does not match its key');
  }
  if (expected !== newest + 1n) throw new Error(`the history ends before revision ${newest}`);
}
