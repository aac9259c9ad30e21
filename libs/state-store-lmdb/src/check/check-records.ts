import { errorMessageOf } from '@cloudless/base';
import type { Revision } from '@cloudless/state-store';
import { encodeLeasedKey } from '../engine/leased-key.js';
import { readHead } from '../engine/table-reads.js';
import type { Tables } from '../engine/tables.js';
import type { EntrySums } from './entry-sums.js';
import { createDamageError } from './page-file.js';

/**
 * Checks that the records are those of the last commit, to find altered, missing, outdated and
 * duplicate records when the store is opened instead of at their first use.
 * @param sums - Sums over the entries and leases of this file.
 * @param file - Path of the data file, for the error.
 * @throws kind `precondition` with the message that the data file is damaged.
 */
export function checkRecords(tables: Tables, sums: EntrySums, file: string): void {
  try {
    const head = readHead(tables);
    sums.throwFault();
    if (sums.newestRevision > head.revision)
      throw new Error(`an entry is of revision ${sums.newestRevision}, after ${head.revision}`);
    checkLeased(tables, sums);
    if (sums.hashSum !== head.hashSum)
      throw new Error('its entries are not those of the last commit');
    checkHistory(sums, head.compactedRevision, head.revision);
  } catch (cause) {
    throw createDamageError(file, `its records are inconsistent (${errorMessageOf(cause)})`, cause);
  }
}

/** Checks that `leasedKeys` has exactly the keys of the entries on leases. */
function checkLeased({ leases, leasedKeys }: Tables, { leased }: EntrySums): void {
  for (const { lease, key } of leased)
    if (!leases.doesExist(Buffer.from(lease)) || !leasedKeys.doesExist(encodeLeasedKey(lease, key)))
      throw new Error('an entry is on a lease that does not have its key');
  if (leasedKeys.getKeysCount() !== leased.length)
    throw new Error('a lease has a key without an entry');
}

/** Checks that the history has every revision after `compacted`, up to `newest`, exactly once. */
function checkHistory({ segments }: EntrySums, compacted: Revision, newest: Revision): void {
  let expected = compacted + 1n;
  for (const { first, last } of segments) {
    if (first !== expected) throw new Error(`revision ${expected} is missing from the history`);
    expected = last + 1n;
  }
  if (expected !== newest + 1n) throw new Error(`the history ends before revision ${newest}`);
}
