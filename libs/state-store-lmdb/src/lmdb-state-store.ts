import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { CloudlessError, silentLog, type Clock, type Log } from '@cloudless/base';
import {
  checkHistoryLimit,
  createEngineStore,
  DEFAULT_HISTORY_BYTES,
  DEFAULT_HISTORY_LIMIT,
  HistoryWindow,
  type StateStore,
  type StorageFault,
} from '@cloudless/state-store';
import { checkDataFile, type FileUse } from './check-data-file.js';
import { checkRecords } from './check-records.js';
import { compactDataFile } from './compact-data-file.js';
import { createDataFile, DATA_FILE, FORMAT_KEY, formatRecord } from './create-data-file.js';
import { prepareDataDirectory } from './data-directory.js';
import { lockDirectory } from './directory-lock.js';
import { isOutOfSpace, noRoomFor } from './lmdb-errors.js';
import { LmdbStorage } from './lmdb-storage.js';
import { damagedFile } from './page-file.js';
import { FORMAT_VERSION } from './records.js';
import { readSegments } from './table-reads.js';
import { openTables, type Tables } from './tables.js';
import { watchFiles } from './watch-files.js';

/** Needs of {@link openLmdbStateStore}. */
export interface LmdbStateStoreOptions {
  /** Where the data is. Created with mode 0700 if absent; refused if other users can read it. */
  readonly directory: string;
  /** Measures leases. */
  readonly clock: Clock;
  /**
   * Changes retained for watches and older revisions, 1 or more: the oldest beyond it are
   * compacted. Default 100 000.
   */
  readonly historyLimit?: number;
  /**
   * Bytes of the data file that these changes take at most, 1 or more: beyond it fewer are
   * retained. Default 64 MiB.
   */
  readonly historyBytes?: number;
  /** Default: none. */
  readonly log?: Log;
  /**
   * Told when the disk turns out to be full, with false, and some seconds after it takes all writes
   * again, with true. Meanwhile writes are refused and reads go on.
   */
  readonly onRoom?: (hasRoom: boolean) => void;
  /**
   * Called once, when the data file was deleted, moved or replaced, or the lock was lost. From then
   * on writes are refused as `unavailable` and reads go on, until a store is opened again.
   */
  readonly onFault?: (fault: StorageFault) => void;
  /**
   * Interval, in milliseconds, at which data file and lock are also checked without writes.
   * Default: none.
   */
  readonly lookEveryMs?: number;
  /**
   * Default true. False acknowledges before the flush: what was acknowledged survives the process,
   * but not a power loss.
   */
  readonly sync?: boolean;
}

/**
 * Opens the store in a directory, or makes a new one. One process at a time.
 * @throws kind `unavailable` when the directory is in use, naming the process; `precondition` when
 *   other users can read it, it is no directory, the data file is damaged, or was written by
 *   another version; `denied` when we may not use it; `exhausted` when the disk is full. Nothing
 *   was changed then.
 */
export async function openLmdbStateStore(options: LmdbStateStoreOptions): Promise<StateStore> {
  const { clock, log, onRoom, onFault, lookEveryMs, sync = true } = options;
  const { historyLimit = DEFAULT_HISTORY_LIMIT, historyBytes = DEFAULT_HISTORY_BYTES } = options;
  checkHistoryLimit(historyLimit, historyBytes);
  const directory = await prepareDataDirectory(options.directory);
  const lock = await lockDirectory(directory);
  const file = join(directory.path, DATA_FILE);
  try {
    if (!(await exists(file))) await createDataFile(directory.path, async () => undefined);
    let look = watchFiles(file, lock);
    const use = checkDataFile(file);
    let tables = await openChecked(file, sync);
    if (await compact(tables, file, use, log ?? silentLog)) {
      look = watchFiles(file, lock); // the copy has an inode of its own
      checkDataFile(file);
      tables = await openChecked(file, sync);
    }
    const window = new HistoryWindow(
      { changes: historyLimit, bytes: historyBytes },
      readSegments(tables),
    );
    const storage = new LmdbStorage(file, tables, window, { look, onClose: () => lock.release() });
    return createEngineStore({
      storage,
      clock,
      historyLimit,
      ...(log === undefined ? {} : { log }),
      ...(onRoom === undefined ? {} : { onRoom }),
      ...(onFault === undefined ? {} : { onFault }),
      ...(lookEveryMs === undefined ? {} : { lookEveryMs }),
    });
  } catch (reason) {
    await lock.release();
    throw (await isOutOfSpace(reason, file)) ? noRoomFor(file, reason) : reason;
  }
}

/** As {@link compactDataFile}. `tables` are closed when the file was replaced or that failed. */
async function compact(tables: Tables, file: string, use: FileUse, log: Log): Promise<boolean> {
  let isReplaced = true;
  try {
    isReplaced = await compactDataFile(tables, file, use, log.child({ component: 'state-store' }));
    return isReplaced;
  } finally {
    if (isReplaced) await tables.root.close();
  }
}

/** Opens a data file whose pages are in order, and checks what is in them. */
async function openChecked(file: string, sync: boolean): Promise<Tables> {
  const tables = await openTables(file, sync);
  try {
    checkFormat(tables, file);
    checkRecords(tables, file);
    return tables;
  } catch (reason) {
    await tables.root.close();
    throw reason;
  }
}

function checkFormat(tables: Tables, file: string): void {
  const found = tables.meta.get(FORMAT_KEY);
  if (found !== undefined && formatRecord().equals(found)) return;
  if (found?.length !== 4) throw damagedFile(file, 'it does not say its format');
  throw new CloudlessError(
    'precondition',
    `${file} has store format ${found.readUInt32BE()}, this program knows format ${FORMAT_VERSION}; use the program that wrote it`,
  );
}

function exists(file: string): Promise<boolean> {
  return stat(file).then(
    () => true,
    (reason: unknown) => {
      if ((reason as { code?: unknown }).code === 'ENOENT') return false;
      throw reason;
    },
  );
}
