import { stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { errorFields, type Log } from '@cloudless/base';
import type { FileUse } from './check-data-file.js';
import { checkRecords } from './check-records.js';
import { createDataFile, FORMAT_KEY } from './create-data-file.js';
import type { Table, Tables } from './tables.js';

/** Smaller files gain nothing from a copy. */
const MIN_BYTES = 256 * 1024;
/** Bytes that one commit of the copy writes and holds in memory. */
const BATCH_BYTES = 4 * 1024 * 1024;

/**
 * Copies a data file of which half or more is free into a smaller one, which takes its place once
 * it is complete, flushed and read again. LMDB itself never gives room back. When the copy cannot
 * be made, because the disk is full for example, the file stays as it is, with a warning in the
 * log.
 * @param tables - Of the file, whose records were checked; they must not be written meanwhile.
 * @param use - What `checkDataFile` found in the file.
 * @throws when the copy has taken the place of the file, but it is unknown whether that survives a
 *   power loss.
 * @returns True: another file has the name now, and `tables` are those of the old one.
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
      checkRecords(copy, draft);
    });
  } catch (reason) {
    // what is written to the old file would be lost
    if ((await stat(file)).ino !== ino) throw reason;
    log.warn('data file not compacted', { file, bytes, freeBytes, ...errorFields(reason) });
    return false;
  }
  log.info('data file compacted', { file, bytes, freeBytes });
  return true;
}

async function copyTables(source: Tables, copy: Tables): Promise<void> {
  for (const name of ['meta', 'entries', 'history', 'leases', 'leasedKeys'] as const) {
    for (const batch of batchesOf(source[name])) {
      await copy.root.childTransaction(() => {
        for (const { key, value } of batch)
          if (!isFormat(name, key)) void copy[name].put(key, value);
      });
    }
  }
}

/** The new file has its format from the beginning. */
function isFormat(table: keyof Tables, key: Buffer): boolean {
  return table === 'meta' && key.equals(FORMAT_KEY);
}

/** All records of a table in the order of their keys, in pieces of some megabytes. */
function* batchesOf(
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
