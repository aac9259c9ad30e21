import type { Clock } from '@cloudless/base';
import { createEngineStore } from '../engine/engine-store.js';
import type { StateStore } from '../state-store.js';
import { DEFAULT_HISTORY_BYTES, DEFAULT_HISTORY_LIMIT, checkHistoryLimit } from '../validate.js';
import { MemoryStorage } from './memory-storage.js';

export interface MemoryStateStoreOptions {
  /** Clock of the leases. */
  readonly clock: Clock;
  /**
   * Changes retained for watches and older revisions, 1 or more. Older changes are compacted.
   * Default 100 000.
   */
  readonly historyLimit?: number;
  /**
   * Limit of the bytes of the retained changes, 1 or more. Fewer changes are retained when they
   * need more. Default 64 MiB.
   */
  readonly historyBytes?: number;
}

/**
 * Creates an in-memory store with the full contract, for tests and simulation. Its content is lost
 * when the process ends.
 * @throws kind `invalid` for a limit that is not an integer of 1 or more.
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
