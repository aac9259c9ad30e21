export { restoreLmdbStateStore } from './file/restore-store.js';
export type { LmdbRestoreOptions } from './file/restore-store.js';
export { openLmdbStateStore } from './engine/lmdb-state-store.js';
export type { LmdbStateStoreOptions } from './engine/lmdb-state-store.js';
export type { EntryConsumer } from './check/entry-sums.js';
