import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { CloudlessError } from '@cloudless/base';
import { HistoryWindow, importSnapshot, type SnapshotSummary } from '@cloudless/state-store';
import { createDataFile, DATA_FILE, DRAFT_FILES } from './create-data-file.js';
import { prepareDataDirectory } from './data-directory.js';
import { HOLDER_FILE, lockDirectory } from './directory-lock.js';
import { isOutOfSpace, noRoomFor } from './lmdb-errors.js';
import { LmdbStorage } from './lmdb-storage.js';
import { isLockFile } from './socket-lock.js';

/** Needs of {@link restoreLmdbStateStore}. */
export interface LmdbRestoreOptions {
  /** Where the new store is to be: a directory that does not exist or is empty. */
  readonly directory: string;
  /** A snapshot, as `exportSnapshot` made it. */
  readonly chunks: AsyncIterable<Uint8Array>;
}

/** What a restore that was interrupted leaves behind. */
const LEFTOVERS: ReadonlySet<string> = new Set([...DRAFT_FILES, HOLDER_FILE]);

/**
 * Makes a new data directory of a snapshot; `openLmdbStateStore` then opens it. The store is there
 * under its name only once all of the snapshot was read, compared and flushed.
 * @throws kind `precondition` when the directory holds anything, others can read it, or the
 *   snapshot is no good; `unavailable` when it is in use; `exhausted` when the disk is full. There
 *   is no store in it then.
 */
export async function restoreLmdbStateStore({
  directory,
  chunks,
}: LmdbRestoreOptions): Promise<SnapshotSummary> {
  await checkEmpty(directory);
  const prepared = await prepareDataDirectory(directory);
  const lock = await lockDirectory(prepared);
  try {
    await checkEmpty(prepared.path); // another restore may have ended just before we had the lock
    return await createDataFile(prepared.path, (draft, tables) =>
      importSnapshot(
        new LmdbStorage(draft, tables, new HistoryWindow({ changes: 1, bytes: 1 })),
        chunks,
      ),
    );
  } catch (reason) {
    const file = join(prepared.path, DATA_FILE);
    throw (await isOutOfSpace(reason, file)) ? noRoomFor(file, reason) : reason;
  } finally {
    await lock.release();
  }
}

async function checkEmpty(directory: string): Promise<void> {
  const names = await readdir(directory).catch((reason: unknown) => {
    const { code } = reason as { readonly code?: unknown };
    if (code === 'ENOENT' || code === 'ENOTDIR') return []; // is made, or refused as no directory
    throw reason;
  });
  const found = names.filter((name) => !LEFTOVERS.has(name) && !isLockFile(name));
  if (found.length === 0) return;
  throw new CloudlessError(
    'precondition',
    `data directory ${directory} is not empty, it holds ${found.slice(0, 3).join(', ')}: a restore makes a new one; ` +
      'name another directory, or move what is there away',
  );
}
