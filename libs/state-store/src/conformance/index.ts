import { describe } from '@jest/globals';
import { describeClose } from './close.js';
import { describeConcurrency } from './concurrency.js';
import type { OpenStore } from './harness.js';
import { describeHistories } from './histories.js';
import { describeLeases } from './leases.js';
import { describeModel } from './model.js';
import { describeRanges } from './ranges.js';
import { describeTransactions } from './transactions.js';
import { describeWatches } from './watches.js';

export type { OpenStore, OpenStoreOptions } from './harness.js';
export { describeSnapshots } from './snapshots.js';
export type { RestoreStore } from './snapshots.js';

/**
 * Declares the tests of the contract of `StateStore`. Every engine must pass them.
 * @param name - Name of the engine, for the titles.
 * @param open - Opens a new, empty store for each test; the suite closes the store.
 */
export function describeStateStore(name: string, open: OpenStore): void {
  describe(`${name} state store:`, () => {
    describeTransactions(open);
    describeRanges(open);
    describeWatches(open);
    describeLeases(open);
    describeClose(open);
    describeConcurrency(open);
    describeHistories(open);
    describeModel(open);
  });
}
