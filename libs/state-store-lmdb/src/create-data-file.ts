import { chmod, open, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { FORMAT_VERSION } from './records.js';
import { openTables, type Tables } from './tables.js';

/** Name of the data file in its directory. */
export const DATA_FILE = 'store.mdb';
/** What a data file is called, with LMDB's lock beside it, until it is complete. */
export const DRAFT_FILES = [`new-${DATA_FILE}`, `new-${DATA_FILE}-lock`] as const;
export const FORMAT_KEY = Buffer.from('format');

/**
 * Makes a data file under another name first, so that a file under its own name is complete or
 * damaged, never new.
 * @param fill - Puts in what is to be there from the beginning; when it throws, no data file was
 *   made.
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

/** The format a data file says it has. */
export function formatRecord(): Buffer {
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
    await tables.root.childTransaction(() => void tables.meta.put(FORMAT_KEY, formatRecord()));
    return await fill(draft, tables);
  } finally {
    await tables.root.close();
  }
}

async function removeDrafts(directory: string): Promise<void> {
  for (const name of DRAFT_FILES) await rm(join(directory, name), { force: true });
}
