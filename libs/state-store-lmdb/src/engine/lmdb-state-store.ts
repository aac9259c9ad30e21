import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { definedFields, CloudlessError, silentLog, type Clock, type Log } from '@cloudless/base';
import {
  checkHistoryLimit,
  createEngineStore,
  DEFAULT_HISTORY_BYTES,
  DEFAULT_HISTORY_LIMIT,
  HistoryWindow,
  type StateStore,
  type StorageFault,
} from '@cloudless/state-store';
import { checkDataFile, type FileUse } from '../check/check-data-file.js';
import { checkRecords } from '../check/check-records.js';
import { compactDataFile } from '../file/compact-data-file.js';
import { createDataFile, DATA_FILE, FORMAT_KEY, encodeFormat } from '../file/create-data-file.js';
import { prepareDataDirectory } from '../file/data-directory.js';
import { lockDirectory } from '../file/directory-lock.js';
import { createDamageError } from '../check/page-file.js';
import { createFileCheck } from '../file/file-check.js';
import { isOutOfSpace, diskFullError } from './lmdb-errors.js';
import { LmdbStorage } from './lmdb-storage.js';
import { FORMAT_VERSION } from './records.js';
import { readSegments } from './table-reads.js';
import { openTables, type Tables } from './tables.js';

export interface LmdbStateStoreOptions {
  /** Data directory. Created with mode 0700 if absent; refused if other users can access it. */
  readonly directory: string;
  /** Measures leases. */
  readonly clock: Clock;
  /**
   * Changes retained for watches and older revisions, 1 or more. Older changes are compacted.
   * Default 100 000.
   */
  readonly historyLimit?: number;
  /**
   * Limit of the bytes of these changes in the data file, 1 or more; beyond it fewer changes are
   * retained. Default 64 MiB.
   */
  readonly historyBytes?: number;
  /** Default: silent. */
  readonly log?: Log;
  /**
   * Runs with false when the disk is full, and with true some seconds after it accepts all writes
   * again. Meanwhile writes are refused and reads continue.
   */
  readonly onDiskSpaceChange?: (hasSpace: boolean) => void;
  /**
   * Runs once, when the data file was deleted, moved or replaced, or the lock was lost. From then
   * on writes are refused as `unavailable`, and reads continue, until a store is opened again.
   */
  readonly onFault?: (fault: StorageFault) => void;
  /** Interval of checks of data file and lock without writes, in milliseconds. Default: none. */
  readonly checkIntervalMs?: number;
  /**
   * False acknowledges before the flush: acknowledged writes survive the end of the process, but
   * not a power loss. Default true.
   */
  readonly sync?: boolean;
}

/**
 * Opens the store in a directory, or creates a new one. Only one process at a time can have a
 * directory open.
 * @throws kind `unavailable` when the directory is in use, naming the process; `precondition` when
 *   other users can access it, it is not a directory, or the data file is damaged or of another
 *   format; `denied` when this process may not use it; `exhausted` when the disk is full. Nothing
 *   was changed then.
 * @example
 * const store = await openLmdbStateStore({ directory: '/var/lib/cloudless', clock });
 * await store.txn([], [{ put: 'a', value }]);
 * await store.close();
 */
export async function openLmdbStateStore(options: LmdbStateStoreOptions): Promise<StateStore> {
  const { clock, log, onFault, sync = true } = options;
  const { historyLimit = DEFAULT_HISTORY_LIMIT, historyBytes = DEFAULT_HISTORY_BYTES } = options;
  checkHistoryLimit(historyLimit, historyBytes);
  const directory = await prepareDataDirectory(options.directory);
  const lock = await lockDirectory(directory);
  const file = join(directory.path, DATA_FILE);
  try {
    if (!(await fileExists(file))) await createDataFile(directory.path, async () => undefined);
    let checkFiles = createFileCheck(file, lock);
    const use = checkDataFile(file);
    let tables = await openChecked(file, sync);
    if (await compactIfWorthwhile(tables, file, use, log ?? silentLog)) {
      checkFiles = createFileCheck(file, lock); // the copy has another inode
      checkDataFile(file);
      tables = await openChecked(file, sync);
    }
    const window = new HistoryWindow(
      { changes: historyLimit, bytes: historyBytes },
      readSegments(tables),
    );
    const storage = new LmdbStorage(file, tables, window, {
      checkFiles,
      onClose: () => lock.release(),
    });
    return createEngineStore({
      storage,
      clock,
      historyLimit,
      ...definedFields({
        log,
        onDiskSpaceChange: options.onDiskSpaceChange,
        onFault,
        checkIntervalMs: options.checkIntervalMs,
      }),
    });
  } catch (reason) {
    await lock.release();
    throw (await isOutOfSpace(reason, file)) ? diskFullError(file, reason) : reason;
  }
}

/** Runs {@link compactDataFile}. Closes `tables` when the file was replaced or that is unknown. */
async function compactIfWorthwhile(
  tables: Tables,
  file: string,
  use: FileUse,
  log: Log,
): Promise<boolean> {
  let isReplaced = true;
  try {
    isReplaced = await compactDataFile(tables, file, use, log.child({ component: 'state-store' }));
    return isReplaced;
  } finally {
    if (isReplaced) await tables.root.close();
  }
}

/** Opens a data file with checked pages, and checks its records. */
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
  if (found !== undefined && encodeFormat().equals(found)) return;
  if (found?.length !== 4) throw createDamageError(file, 'it has no valid format record');
  throw new CloudlessError(
    'precondition',
    `${file} has store format ${found.readUInt32BE()}, this program supports format ${FORMAT_VERSION}; use the version of Cloudless that wrote it`,
  );
}

function fileExists(file: string): Promise<boolean> {
  return stat(file).then(
    () => true,
    (reason: unknown) => {
      if ((reason as { code?: unknown }).code === 'ENOENT') return false;
      throw reason;
    },
  );
}
