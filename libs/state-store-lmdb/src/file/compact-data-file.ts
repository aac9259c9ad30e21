import { stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { errorFields, type Log } from '@cloudless/base';
import type { FileUse } from '../check/check-data-file.js';
import { checkRecords } from '../check/check-records.js';
import { EntrySums } from '../check/entry-sums.js';
import type { Table, Tables } from '../engine/tables.js';
import { createDataFile, FORMAT_KEY } from './create-data-file.js';

/** Smallest file that is compacted: below, a copy saves too little. */
const MIN_BYTES = 256 * 1024;
/** Bytes that one commit of the copy writes and holds in memory. */
const BATCH_BYTES = 4 * 1024 * 1024;

/**
 * Copies a data file with at least half of its space free into a smaller file. The copy replaces
 * the file after it is complete, flushed and verified. LMDB itself never shrinks a file. When the
 * copy fails, for example because the disk is full, the file stays as it is, and a warning is
 * logged.
 * @param tables - Open tables of the file, whose records were checked. No write may run meanwhile.
 * @param use - Result of `checkDataFile`.
 * @returns True when the file was replaced; `tables` then belong to the old file and must be
 *   closed.
 * @throws When the copy has replaced the file, but may not survive a power loss.
 */
export async function compactDataFile(
  tables: Tables,
  file: string,
  use: FileUse,
  log: Log,
): Promise<boolean> {
  const { bytes, freeBytes } = use;
  if (bytes < MIN_BYTES || freeBytes * 2 < bytes) return false;
  const { ino } = await stat(file);
  try {
    await createDataFile(dirname(file), async (draft, copy) => {
      await copyTables(tables, copy);
      checkRecords(copy, EntrySums.read(copy), draft);
    });
  } catch (reason) {
    // the file was replaced: writes to the old file would be lost
    if ((await stat(file)).ino !== ino) throw reason;
    log.warn('data file not compacted', { file, bytes, freeBytes, ...errorFields(reason) });
    return false;
  }
  log.info('data file compacted', { file, bytes, freeBytes });
  return true;
}

async function copyTables(source: Tables, copy: Tables): Promise<void> {
  for (const name of ['meta', 'entries', 'history', 'leases', 'leasedKeys'] as const) {
    for (const batch of readBatches(source[name])) {
      await copy.root.childTransaction(() => {
        for (const { key, value } of batch)
          if (!isFormat(name, key)) void copy[name].put(key, value);
      });
    }
  }
}

/** Returns true for the format record, which the new file already has. */
function isFormat(table: keyof Tables, key: Buffer): boolean {
  return table === 'meta' && key.equals(FORMAT_KEY);
}

/** Yields all records of a table in key order, in batches of at least BATCH_BYTES. */
function* readBatches(
  table: Table,
): Iterable<readonly { readonly key: Buffer; readonly value: Buffer }[]> {
  for (let after: Buffer | undefined; ;) {
    const batch: { key: Buffer; value: Buffer }[] = [];
    let bytes = 0;
    for (const { key, value } of table.getRange(
      after === undefined ? {} : { start: after, exclusiveStart: true },
    )) {
      batch.push({ key: Buffer.from(key), value: Buffer.from(value) });
      bytes += key.length + value.length;
      if (bytes >= BATCH_BYTES) break;
    }
    if (batch.length === 0) return;
    yield batch;
    after = batch.at(-1)?.key;
  }
}
