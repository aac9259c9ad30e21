import type { Clock } from '@cloudless/base';
import { createEngineStore } from './engine-store.js';
import { MemoryStorage } from './memory-storage.js';
import type { StateStore } from './state-store.js';
import { DEFAULT_HISTORY_BYTES, DEFAULT_HISTORY_LIMIT, checkHistoryLimit } from './validate.js';

/** Needs of {@link createMemoryStateStore}. */
export interface MemoryStateStoreOptions {
  /** Measures leases. */
  readonly clock: Clock;
  /**
   * Changes retained for watches and older revisions, 1 or more: the oldest beyond it are
   * compacted. Default 100 000.
   */
  readonly historyLimit?: number;
  /**
   * Bytes that these changes take at most, 1 or more: beyond it fewer are retained. Default 64 MiB.
   */
  readonly historyBytes?: number;
}

/**
 * A store in memory for tests and simulation: all of the contract, but nothing survives the
 * process.
 */
export function createMemoryStateStore(options: MemoryStateStoreOptions): StateStore {
  const {
    clock,
    historyLimit = DEFAULT_HISTORY_LIMIT,
    historyBytes = DEFAULT_HISTORY_BYTES,
  } = options;
  checkHistoryLimit(historyLimit, historyBytes);
  return createEngineStore({
    storage: new MemoryStorage(historyLimit, historyBytes),
    clock,
    historyLimit,
  });
}
