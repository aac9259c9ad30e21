export { openLmdbStateStore } from './lmdb-state-store.js';
export type { LmdbStateStoreOptions } from './lmdb-state-store.js';
