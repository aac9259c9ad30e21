import { chmod, open, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { CloudlessError, type Clock, type Log } from '@cloudless/base';
import {
  checkHistoryLimit,
  createEngineStore,
  DEFAULT_HISTORY_LIMIT,
  HistoryWindow,
  type StateStore,
} from '@cloudless/state-store';
import { checkDataFile } from './check-data-file.js';
import { checkRecords } from './check-records.js';
import { prepareDataDirectory } from './data-directory.js';
import { lockDirectory } from './directory-lock.js';
import { isOutOfSpace } from './lmdb-errors.js';
import { LmdbStorage } from './lmdb-storage.js';
import { decodeSegmentKey, FORMAT_VERSION } from './records.js';
import { openTables, type Tables } from './tables.js';

/** Needs of {@link openLmdbStateStore}. */
export interface LmdbStateStoreOptions {
  /** Where the data is. Created with mode 0700 if absent; refused if other users can read it. */
  readonly directory: string;
  /** Measures leases. */
  readonly clock: Clock;
  /** Changes retained for watches and older revisions, 1 or more: the oldest beyond it are compacted. Default 100 000. */
  readonly historyLimit?: number;
  /** Default: none. */
  readonly log?: Log;
  /** Default true. False acknowledges before the flush: what was acknowledged survives the process, but not a power loss. */
  readonly sync?: boolean;
}

const DATA_FILE = 'store.mdb';
const FORMAT_KEY = Buffer.from('format');

/**
 * Opens the store in a directory, or makes a new one. One process at a time.
 * @throws kind `unavailable` when the directory is in use, naming the process; `precondition` when other users can read it, it is
 *   no directory, the data file is damaged, or was written by another version; `denied` when we may not use it; `exhausted` when the
 *   disk is full. Nothing was changed then.
 */
export async function openLmdbStateStore(options: LmdbStateStoreOptions): Promise<StateStore> {
  const { clock, historyLimit = DEFAULT_HISTORY_LIMIT, log, sync = true } = options;
  checkHistoryLimit(historyLimit);
  const directory = await prepareDataDirectory(options.directory);
  const lock = await lockDirectory(directory);
  const file = join(directory.path, DATA_FILE);
  try {
    if (!(await exists(file))) await createDataFile(directory.path, file);
    checkDataFile(file);
    const tables = await openChecked(file, sync);
    const window = new HistoryWindow(historyLimit, [...tables.history.getKeys()].map(decodeSegmentKey));
    const storage = new LmdbStorage(file, tables, window, () => lock.release());
    return createEngineStore({ storage, clock, historyLimit, ...(log === undefined ? {} : { log }) });
  } catch (reason) {
    await lock.release();
    if (await isOutOfSpace(reason, file)) throw new CloudlessError('exhausted', `no room left for ${file}`, { cause: reason });
    throw reason;
  }
}

/** Makes an empty data file under another name first, so that a file under its own name is complete or damaged, never new. */
async function createDataFile(directory: string, file: string): Promise<void> {
  const draft = join(directory, `new-${DATA_FILE}`);
  for (const leftover of [draft, `${draft}-lock`]) await rm(leftover, { force: true });
  const tables = openTables(draft, true);
  await tables.root.childTransaction(() => void tables.meta.put(FORMAT_KEY, formatRecord()));
  await tables.root.close();
  await chmod(draft, 0o600);
  await rename(draft, file);
  await rm(`${draft}-lock`, { force: true });
  const handle = await open(directory, 'r');
  await handle.sync();
  await handle.close();
}

/** Opens a data file whose pages are in order, and checks what is in them. */
async function openChecked(file: string, sync: boolean): Promise<Tables> {
  const tables = openTables(file, sync);
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
  const version = found?.length === 4 ? found.readUInt32BE() : 'unknown';
  throw new CloudlessError(
    'precondition',
    `${file} has store format ${version}, this program knows format ${FORMAT_VERSION}; use the program that wrote it`,
  );
}

function formatRecord(): Buffer {
  const record = Buffer.alloc(4);
  record.writeUInt32BE(FORMAT_VERSION);
  return record;
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
