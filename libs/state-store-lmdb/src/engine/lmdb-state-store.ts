import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import {
  definedFields,
  CloudlessError,
  errorCodeOf,
  silentLog,
  type Clock,
  type Log,
} from '@cloudless/base';
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
import type { EntryConsumer, EntrySums } from '../check/entry-sums.js';
import { compactDataFile } from '../file/compact-data-file.js';
import { createDataFile, DATA_FILE, FORMAT_KEY, encodeFormat } from '../file/create-data-file.js';
import { prepareDataDirectory } from '../file/data-directory.js';
import { lockDirectory } from '../file/directory-lock.js';
import { createDamageError } from '../check/page-file.js';
import { createFileCheck } from '../file/file-check.js';
import { isOutOfSpace, diskFullError } from './lmdb-errors.js';
import { LmdbStorage } from './lmdb-storage.js';
import { FORMAT_VERSION } from './records.js';
import { readHead } from './table-reads.js';
import { openTables, type Tables } from './tables.js';

export interface LmdbStateStoreOptions {
  /** Data directory. Created with mode 0700 if absent; refused if other users can access it. */
  readonly directory: string;
  /** Clock of leases, file checks and probes of the disk. */
  readonly clock: Clock;
  /**
   * Changes retained for watches and older revisions, 1 or more. Older changes are compacted.
   * Default 100 000.
   */
  readonly historyLimit?: number;
  /**
   * Limit of the bytes of the retained changes in the data file, 1 or more. Fewer changes are
   * retained when they need more. Default 64 MiB.
   */
  readonly historyBytes?: number;
  /** Default: no log. */
  readonly log?: Log;
  /**
   * Runs with false when a write fails because the disk is full, and with true once the disk has
   * space again. Between both calls large writes are refused, and reads continue.
   */
  readonly onDiskSpaceChange?: (hasSpace: boolean) => void;
  /**
   * Runs once, when the data file was deleted, moved, replaced or overwritten, or the lock was
   * lost. From then on writes are refused as `unavailable`, and reads continue, until the store is
   * opened again.
   */
  readonly onFault?: (fault: StorageFault) => void;
  /**
   * Interval of checks of data file and lock, in milliseconds. Default: both are checked only
   * before and after each write.
   */
  readonly checkIntervalMs?: number;
  /**
   * False: writes are acknowledged before the flush, and survive the end of the process, but not a
   * power loss. Default true.
   */
  readonly sync?: boolean;
  /**
   * Receives all entries while the data file is checked, which saves reading them afterwards. They
   * count only after `end`: the file may be refused.
   */
  readonly entryConsumer?: EntryConsumer;
}

/**
 * Opens the store in a directory, or creates a new one. Only one process at a time can have a
 * directory open.
 * @throws kind `unavailable` when the directory is in use, naming the process; `precondition` when
 *   other users can access the directory, the path is not a directory, or the data file is damaged
 *   or of another format; `denied` when this process may not use the directory; `exhausted` when
 *   the disk is full; `invalid` for a history limit that is not an integer of 1 or more. The data
 *   file is then unchanged.
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
    const use = checkDataFile(file, options.entryConsumer);
    let { sums } = use;
    let tables = await openChecked(file, sums, sync);
    if (await compactIfWorthwhile(tables, file, use, log ?? silentLog)) {
      checkFiles = createFileCheck(file, lock); // the copy has another inode
      ({ sums } = checkDataFile(file)); // the copy has the same entries
      tables = await openChecked(file, sums, sync);
    }
    options.entryConsumer?.end(readHead(tables).revision);
    const window = new HistoryWindow({ changes: historyLimit, bytes: historyBytes }, sums.segments);
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

/**
 * Runs {@link compactDataFile}. Closes `tables` when the file was replaced, or when it is unknown
 * whether the file was replaced.
 * @returns True when the file was replaced.
 */
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

/** Opens a data file whose pages were checked, and checks format and records. */
async function openChecked(file: string, sums: EntrySums, sync: boolean): Promise<Tables> {
  const tables = await openTables(file, sync);
  try {
    checkFormat(tables, file);
    checkRecords(tables, sums, file);
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
      if (errorCodeOf(reason) === 'ENOENT') return false;
      throw reason;
    },
  );
}
