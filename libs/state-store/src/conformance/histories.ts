import { describe, expect, it } from '@jest/globals';
import { createSeededRandom } from '@cloudless/base';
import { checkStoreHistory } from '../linearizability/check-store-history.js';
import { checkWatch, type RecordedWatch } from '../linearizability/check-watch.js';
import { runConcurrentClients } from '../linearizability/concurrent-clients.js';
import { keyOf, readStoreLog, type StoreLog } from '../linearizability/store-log.js';
import type { ChangeBatch, StateStore } from '../state-store.js';
import { withStore, type OpenStore } from './harness.js';

const CLIENTS = 5;
const CALLS_PER_CLIENT = 40;
const PREFIX = '/history/';

/** Declares the tests that check recorded histories of concurrent clients. */
export function describeHistories(open: OpenStore): void {
  describe('recorded histories of concurrent clients', () => {
    it.each([1, 2, 3])('are strictly serializable, and so are all watches (seed %i)', (seed) =>
      withStore(open, async (store) => {
        const watches = ['', `${PREFIX}1`].map((prefix) => recordWatch(store, prefix));
        const calls = await runConcurrentClients(store, {
          random: createSeededRandom(seed),
          clients: CLIENTS,
          callsPerClient: CALLS_PER_CLIENT,
          prefix: PREFIX,
        });
        const log = await readStoreLog(store, await store.revision());
        expect(checkStoreHistory(log, calls)).toEqual([]);
        const outcomes = calls.map(({ result }) => result?.output.kind);
        expect(outcomes).toEqual(expect.arrayContaining(['committed', 'conflict', 'page']));
        for (const watch of watches) {
          expect(checkWatch(log, await watch(log))).toEqual([]);
        }
      }),
    );
  });
}

/**
 * Starts a watch from revision 0 on.
 * @returns A function that waits for the newest change of a log and returns what the watch delivered.
 */
function recordWatch(store: StateStore, prefix: string): (log: StoreLog) => Promise<RecordedWatch> {
  const batches: ChangeBatch[] = [];
  const watch = store.watch({ prefix, after: 0n })[Symbol.asyncIterator]();
  let next = watch.next(); // starts the watch before the clients write
  return async (log) => {
    const newest = log.batches.findLast(({ changes }) =>
      changes.some((change) => keyOf(change).startsWith(prefix)),
    );
    while ((batches.at(-1)?.revision ?? 0n) < (newest?.revision ?? 0n)) {
      const { done, value } = await next;
      if (done === true) throw new Error(`the watch of ${prefix} ended`);
      batches.push(value);
      next = watch.next();
    }
    next.catch(() => undefined); // ends when the store is closed
    return { client: `the reader of ${prefix}`, prefix, after: 0n, batches };
  };
}
