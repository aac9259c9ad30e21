import type { Clock } from '@cloudless/base';
import { createEngineStore } from './engine-store.js';
import { MemoryStorage } from './memory-storage.js';
import type { StateStore } from './state-store.js';
import { checkHistoryLimit } from './validate.js';

/** How many changes an engine retains when it is not told. */
export const DEFAULT_HISTORY_LIMIT = 100_000;

/** Needs of {@link createMemoryStateStore}. */
export interface MemoryStateStoreOptions {
  /** Measures leases. */
  readonly clock: Clock;
  /** Changes retained for watches and older revisions, 1 or more: the oldest beyond it are compacted. Default 100 000. */
  readonly historyLimit?: number;
}

/** A store in memory for tests and simulation: all of the contract, but nothing survives the process. */
export function createMemoryStateStore(options: MemoryStateStoreOptions): StateStore {
  const { clock, historyLimit = DEFAULT_HISTORY_LIMIT } = options;
  checkHistoryLimit(historyLimit);
  return createEngineStore({ storage: new MemoryStorage(historyLimit), clock, historyLimit });
}
