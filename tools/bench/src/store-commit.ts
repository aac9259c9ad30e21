// Commits of the embedded store, acknowledged after they are on disk: conditional transactions by
// 1, 64 and 1 000 writers, and plain puts in batches of 100.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLog } from '@cloudless/base';
import type { Revision, StateStore } from '@cloudless/state-store';
import { openLmdbStateStore } from '@cloudless/state-store-lmdb';
import { systemClock } from '@cloudless/app-kit';
import { printReport, summarise } from './report.js';
import { Violations } from './violations.js';

/** Measured runs of each kind, after a run that is not counted. */
const RUNS = 5;
/** Duration of a run, milliseconds. */
const RUN_MS = 2_000;
const VALUE = new Uint8Array(200).fill(7);
const PUTS_PER_BATCH = 100;
/** Number of concurrent batches, enough for full group commits. */
const BATCH_WRITERS = 64;

const violations = new Violations();

/**
 * Lets each writer update its own key under the condition that nothing else has changed the key.
 * @returns Transactions per second.
 */
async function measureConditionalWrites(store: StateStore, writers: number): Promise<number> {
  const until = systemClock.now() + RUN_MS;
  const startedAt = systemClock.now();
  let commits = 0;
  const write = async (writer: number): Promise<void> => {
    const key = `/bench/${writer}`;
    let revision: Revision | 'absent' = (await store.get(key))?.modRevision ?? 'absent';
    while (systemClock.now() < until) {
      ({ revision } = await store.txn([{ key, is: revision }], [{ put: key, value: VALUE }]));
      commits += 1;
    }
    const kept = (await store.get(key))?.modRevision;
    violations.check(
      kept === revision,
      `${key} was acknowledged at revision ${revision} and is at ${kept ?? 'none'}`,
    );
  };
  await Promise.all(Array.from({ length: writers }, (_, writer) => write(writer)));
  return commits / ((systemClock.now() - startedAt) / 1_000);
}

/**
 * Writes batches of puts.
 * @returns Puts per second.
 */
async function measureBatchedPuts(store: StateStore): Promise<number> {
  const until = systemClock.now() + RUN_MS;
  const startedAt = systemClock.now();
  let puts = 0;
  const write = async (writer: number): Promise<void> => {
    const operations = Array.from({ length: PUTS_PER_BATCH }, (_, index) => ({
      put: `/batch/${writer}/${index}`,
      value: VALUE,
    }));
    while (systemClock.now() < until) {
      await store.txn([], operations);
      puts += PUTS_PER_BATCH;
    }
  };
  await Promise.all(Array.from({ length: BATCH_WRITERS }, (_, writer) => write(writer)));
  return puts / ((systemClock.now() - startedAt) / 1_000);
}

const directory = await mkdtemp(join(tmpdir(), 'cloudless-bench-'));
const store = await openLmdbStateStore({
  directory: join(directory, 'store'),
  clock: systemClock,
  log: silentLog,
});
try {
  const measure = async (run: () => Promise<number>) => {
    await run(); // not counted: warm-up
    const rates: number[] = [];
    for (let count = 0; count < RUNS; count += 1) rates.push(await run());
    return summarise(rates);
  };
  printReport('store-commit', {
    unit: 'per second, acknowledged after the flush',
    valueBytes: VALUE.length,
    conditionalTransactions: {
      writers1: await measure(() => measureConditionalWrites(store, 1)),
      writers64: await measure(() => measureConditionalWrites(store, 64)),
      writers1000: await measure(() => measureConditionalWrites(store, 1_000)),
    },
    putsInBatches: {
      perTransaction: PUTS_PER_BATCH,
      ...(await measure(() => measureBatchedPuts(store))),
    },
    violations: violations.texts,
  });
} finally {
  await store.close();
  await rm(directory, { recursive: true, force: true });
}
process.exit(violations.exitCode());
