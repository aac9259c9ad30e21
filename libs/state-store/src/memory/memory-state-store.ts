import type { Clock } from '@cloudless/base';
import { createEngineStore } from '../engine/engine-store.js';
import type { StateStore } from '../state-store.js';
import { DEFAULT_HISTORY_BYTES, DEFAULT_HISTORY_LIMIT, checkHistoryLimit } from '../validate.js';
import { MemoryStorage } from './memory-storage.js';

export interface MemoryStateStoreOptions {
  /** Measures leases. */
  readonly clock: Clock;
  /**
   * Changes retained for watches and older revisions, 1 or more. Older changes are compacted.
   * Default 100 000.
   */
  readonly historyLimit?: number;
  /**
   * Limit of the bytes of these changes, 1 or more; beyond it fewer changes are retained. Default
   * 64 MiB.
   */
  readonly historyBytes?: number;
}

/**
 * Creates an in-memory store with the full contract, for tests and simulation. Its content is lost
 * at the end of the process.
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
