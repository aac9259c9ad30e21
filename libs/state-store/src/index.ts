export { createMemoryStateStore } from './memory-state-store.js';
export type { MemoryStateStoreOptions } from './memory-state-store.js';
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

// Everything at one revision, as bytes.
export { exportSnapshot } from './snapshot/export-snapshot.js';
export { verifySnapshot } from './snapshot/read-snapshot.js';
export type { SnapshotHeader, SnapshotSummary } from './snapshot/format.js';

// For engines: what an adapter needs to bring its own storage and share everything else.
export { createEngineStore } from './engine-store.js';
export type { EngineStoreOptions } from './engine-store.js';
export { StorageFault } from './storage-fault.js';
export { importSnapshot } from './snapshot/import-snapshot.js';
export { HistoryWindow } from './history-window.js';
export { MemoryStorage } from './memory-storage.js';
export type { HistoryLimits, HistorySegment } from './history-window.js';
export type {
  LoggedChange,
  LoggedTransaction,
  Storage,
  StorageReader,
  StorageWriter,
  StoredEntry,
  StoreHead,
} from './storage.js';
export { DEFAULT_HISTORY_BYTES, DEFAULT_HISTORY_LIMIT, checkHistoryLimit } from './validate.js';
