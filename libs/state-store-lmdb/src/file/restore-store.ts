import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { CloudlessError, errorCodeOf } from '@cloudless/base';
import {
  HistoryWindow,
  importSnapshot,
  type ChangeEntry,
  type SnapshotSummary,
} from '@cloudless/state-store';
import { isOutOfSpace, diskFullError } from '../engine/lmdb-errors.js';
import { LmdbStorage } from '../engine/lmdb-storage.js';
import { createDataFile, DATA_FILE, DRAFT_FILES } from './create-data-file.js';
import { prepareDataDirectory } from './data-directory.js';
import { HOLDER_FILE, lockDirectory } from './directory-lock.js';
import { isLockFile } from './socket-lock.js';

/** Options of {@link restoreLmdbStateStore}. */
export interface LmdbRestoreOptions {
  /** Directory for the new store; must be empty or absent. */
  readonly directory: string;
  /** A snapshot from `exportSnapshot`. */
  readonly chunks: AsyncIterable<Uint8Array>;
  /** Returns what to keep for an entry of the snapshot. Default: the entry. */
  readonly changeEntry?: ChangeEntry;
}

/** Files that an interrupted restore may leave behind. */
const LEFTOVERS: ReadonlySet<string> = new Set([...DRAFT_FILES, HOLDER_FILE]);

/**
 * Creates a data directory from a snapshot, for `openLmdbStateStore`. The data file gets its final
 * name only after the whole snapshot was read, verified and flushed.
 * @returns The summary of the snapshot.
 * @throws kind `precondition` when the directory is not empty, other users can access the
 *   directory, or the snapshot is damaged; `unavailable` when the directory is in use; `denied`
 *   when this process may not use it; `exhausted` when the disk is full. The directory then has no
 *   store.
 */
export async function restoreLmdbStateStore({
  directory,
  chunks,
  changeEntry,
}: LmdbRestoreOptions): Promise<SnapshotSummary> {
  await checkEmpty(directory);
  const prepared = await prepareDataDirectory(directory);
  const lock = await lockDirectory(prepared);
  try {
    // another restore may have finished just before the lock was acquired
    await checkEmpty(prepared.path);
    return await createDataFile(prepared.path, (draft, tables) =>
      importSnapshot(
        new LmdbStorage(draft, tables, new HistoryWindow({ changes: 1, bytes: 1 })),
        chunks,
        changeEntry,
      ),
    );
  } catch (reason) {
    const file = join(prepared.path, DATA_FILE);
    throw (await isOutOfSpace(reason, file)) ? diskFullError(file, reason) : reason;
  } finally {
    await lock.release();
  }
}

/** @throws kind `precondition` when the directory has files that no restore left behind. */
async function checkEmpty(directory: string): Promise<void> {
  const names = await readdir(directory).catch((reason: unknown) => {
    const code = errorCodeOf(reason);
    // prepareDataDirectory creates the directory, or refuses a path that is not a directory
    if (code === 'ENOENT' || code === 'ENOTDIR') return [];
    throw reason;
  });
  const otherFiles = names.filter((name) => !LEFTOVERS.has(name) && !isLockFile(name));
  if (otherFiles.length === 0) return;
  throw new CloudlessError(
    'precondition',
    `data directory ${directory} is not empty, it holds ${otherFiles.slice(0, 3).join(', ')}: a restore needs an empty directory; ` +
      'choose another directory, or move the files away',
  );
}
