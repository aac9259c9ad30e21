export { createMemoryStateStore } from './memory/memory-state-store.js';
export type { MemoryStateStoreOptions } from './memory/memory-state-store.js';
export {
  MAX_KEY_BYTES,
  MAX_TXN_BYTES,
  MAX_TXN_OPERATIONS,
  RevisionConflictError,
} from './state-store.js';
export type {
  Change,
  ChangeBatch,
  Committed,
  Compare,
  LeaseId,
  Operation,
  RangePage,
  RangeRequest,
  Revision,
  StateStore,
  StoreEntry,
} from './state-store.js';

// Backup: the whole store at one revision, as bytes.
export { exportSnapshot } from './snapshot/export-snapshot.js';
export { readSnapshot, verifySnapshot } from './snapshot/read-snapshot.js';
export { digestContent } from './snapshot/digest-content.js';
export type { ContentDigest } from './snapshot/digest-content.js';
export type { SnapshotHeader, SnapshotSummary } from './snapshot/format.js';

// For engines: createEngineStore makes a StateStore of the Storage that an adapter implements.
export { createEngineStore } from './engine/engine-store.js';
export type { EngineStoreOptions } from './engine/engine-store.js';
export { StorageFault } from './engine/storage-fault.js';
export { toStoreEntry } from './engine/read-range.js';
export { importSnapshot } from './snapshot/import-snapshot.js';
export type { ChangeEntry } from './snapshot/import-snapshot.js';
export { HistoryWindow } from './engine/history-window.js';
export { compareKeys } from './utf8.js';
export { MemoryStorage } from './memory/memory-storage.js';
export type { HistoryLimits, HistorySegment } from './engine/history-window.js';
export type {
  LoggedTransaction,
  Storage,
  StorageReader,
  StorageWriter,
  StoredEntry,
  StoreHead,
} from './engine/storage.js';
export {
  DEFAULT_HISTORY_BYTES,
  DEFAULT_HISTORY_LIMIT,
  DEFAULT_RANGE_LIMIT,
  checkHistoryLimit,
  checkKey,
  checkPrefix,
  checkRange,
  checkTransaction,
  checkTtl,
} from './validate.js';
