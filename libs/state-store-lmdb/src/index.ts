export { restoreLmdbStateStore } from './restore-store.js';
export type { LmdbRestoreOptions } from './restore-store.js';
export { openLmdbStateStore } from './lmdb-state-store.js';
export type { LmdbStateStoreOptions } from './lmdb-state-store.js';
