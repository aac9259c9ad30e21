import { describe } from '@jest/globals';
import { describeClose } from './close.js';
import { describeConcurrency } from './concurrency.js';
import type { EngineTraits, OpenStore } from './harness.js';
import { describeHistories } from './histories.js';
import { describeLeases } from './leases.js';
import { describeLeaseTimes } from './lease-times.js';
import { describeServerLeaseTimes } from './server-lease-times.js';
import { describeModel } from './model.js';
import { describeRanges } from './ranges.js';
import { describeTransactions } from './transactions.js';
import { describeWatches } from './watches.js';

export type { EngineTraits, OpenStore, OpenStoreOptions } from './harness.js';
export { describeSnapshots } from './snapshots.js';
export type { RestoreStore } from './snapshots.js';

/**
 * Declares the tests of the contract of `StateStore`. Every engine must pass them.
 * @param name - Name of the engine, for the titles.
 * @param open - Opens a new, empty store for each test; the suite closes the store.
 * @param traits - In what the engine differs within the contract. Default: in nothing.
 */
export function describeStateStore(name: string, open: OpenStore, traits: EngineTraits = {}): void {
  describe(`${name} state store:`, () => {
    describeTransactions(open);
    describeRanges(open, traits);
    describeWatches(open, traits);
    describeLeases(open);
    if (traits.minimumLeaseMs === undefined) describeLeaseTimes(open);
    else describeServerLeaseTimes(open, traits.minimumLeaseMs);
    describeClose(open, traits);
    describeConcurrency(open, traits);
    describeHistories(open);
    describeModel(open, traits);
  });
}
