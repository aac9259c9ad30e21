import { chmod, open, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { FORMAT_VERSION } from '../engine/records.js';
import { openTables, type Tables } from '../engine/tables.js';

/** Name of the data file in its directory. */
export const DATA_FILE = 'store.mdb';
/** Names of an incomplete data file, and of the lock file that LMDB creates beside it. */
export const DRAFT_FILES = [`new-${DATA_FILE}`, `new-${DATA_FILE}-lock`] as const;
/** Key of the format version in table `meta`. */
export const FORMAT_KEY = Buffer.from('format');

/**
 * Creates a data file under a temporary name and renames it when it is complete, so that a file
 * under the final name is never incomplete.
 * @param fill - Writes the initial content to the open tables of the draft. When `fill` throws, no
 *   data file is created.
 * @returns The result of `fill`.
 */
export async function createDataFile<T>(
  directory: string,
  fill: (draft: string, tables: Tables) => Promise<T>,
): Promise<T> {
  const draft = join(directory, DRAFT_FILES[0]);
  await removeDrafts(directory);
  const result = await fillDraft(draft, fill).catch(async (reason: unknown) => {
    await removeDrafts(directory);
    throw reason;
  });
  await chmod(draft, 0o600);
  await rename(draft, join(directory, DATA_FILE));
  await removeDrafts(directory);
  const handle = await open(directory, 'r');
  await handle.sync();
  await handle.close();
  return result;
}

/** Encodes the record with the format version, which has no checksum. */
export function encodeFormat(): Buffer {
  const record = Buffer.alloc(4);
  record.writeUInt32BE(FORMAT_VERSION);
  return record;
}

async function fillDraft<T>(
  draft: string,
  fill: (draft: string, tables: Tables) => Promise<T>,
): Promise<T> {
  const tables = await openTables(draft, true);
  try {
    await tables.root.childTransaction(() => void tables.meta.put(FORMAT_KEY, encodeFormat()));
    return await fill(draft, tables);
  } finally {
    await tables.root.close();
  }
}

async function removeDrafts(directory: string): Promise<void> {
  for (const name of DRAFT_FILES) await rm(join(directory, name), { force: true });
}
