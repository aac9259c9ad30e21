// Commits of the embedded store, acknowledged after they are on disk: of the engine alone, and of
// the cluster state with its view behind. The store holds records already, as in a cluster.
import { mkdtemp, open, rm, statfs } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  Event_Category as Category,
  Event_Severity as Severity,
  ReplicaStatus_Phase as Phase,
} from '@cloudless/api';
import { ReplicaRecordSchema } from '@cloudless/api/store';
import { createSeededRandom, silentLog } from '@cloudless/base';
import { copyReplica, openClusterState, type ClusterState } from '@cloudless/cluster-state';
import type { StateStore } from '@cloudless/state-store';
import { openLmdbStateStore } from '@cloudless/state-store-lmdb';
import { systemClock, systemRandom } from '@cloudless/app-kit';
import { printReport, summarise } from './report.js';
import { Violations } from './violations.js';

const { values } = parseArgs({
  options: {
    // The disk of this directory decides what a flush costs.
    directory: { type: 'string', default: tmpdir() },
    // Replica records in the store before the first measurement.
    records: { type: 'string', default: '50000' },
    // Measured runs of each kind, after a run that is not counted.
    runs: { type: 'string', default: '3' },
  },
});
const RECORDS = Number(values.records);
const RUNS = Number(values.runs);
/** Duration of a run, milliseconds. */
const RUN_MS = 1_000;
/** Records of a transaction that fills the store. */
const RECORDS_PER_TRANSACTION = 90;
/** Size of a replica record with its container facts. */
const VALUE = new Uint8Array(200).fill(7);
const PUTS_PER_BATCH = 100;
/** Number of concurrent batches, enough for full group commits. */
const BATCH_WRITERS = 64;
const WRITERS = [1, 64, 1_000];
/** Calls of fdatasync that show what the disk does. */
const SYNCS = 200;
/** Type of tmpfs in statfs(2). */
const TMPFS_MAGIC = 0x0102_1994;
const SEED = 1;

const random = createSeededRandom(SEED);
const violations = new Violations();
const replicaIdOf = (index: number): string => `0123456789abcdef-${index + 1}`;

/** Transactions and CPU time of a run. */
interface Run {
  readonly perSecond: number;
  readonly cpuUs: number;
}

/**
 * Lets writers make transactions, one after the other each, for {@link RUN_MS}.
 * @param transact - Makes one transaction.
 * @param weight - Number that one transaction counts.
 */
async function measureWriters(
  writers: number,
  transact: (writer: number) => Promise<unknown>,
  weight = 1,
): Promise<Run> {
  const startedAt = systemClock.now();
  const until = startedAt + RUN_MS;
  const cpuBefore = process.cpuUsage();
  let commits = 0;
  const write = async (writer: number): Promise<void> => {
    while (systemClock.now() < until) {
      await transact(writer);
      commits += weight;
    }
  };
  await Promise.all(Array.from({ length: writers }, (_, writer) => write(writer)));
  const { user, system } = process.cpuUsage(cpuBefore);
  return {
    perSecond: commits / ((systemClock.now() - startedAt) / 1_000),
    cpuUs: (user + system) / commits,
  };
}

/** Fills the store with replica records of running replicas. */
async function fill(state: ClusterState): Promise<void> {
  const createdAt = timestampFromMs(systemClock.wallTime());
  const commits: Promise<unknown>[] = [];
  for (let first = 0; first < RECORDS; first += RECORDS_PER_TRANSACTION) {
    const transaction = state.transaction();
    const last = Math.min(RECORDS, first + RECORDS_PER_TRANSACTION);
    for (let index = first; index < last; index += 1) {
      transaction.createReplica(
        create(ReplicaRecordSchema, {
          id: replicaIdOf(index),
          uid: '0123456789abcdef',
          sequence: BigInt(index + 1),
          slot: index,
          version: 1,
          nodeId: `node-${index % 500}`,
          desiredRunning: true,
          phase: Phase.RUNNING,
          ready: true,
          containerId: `process-${index}`,
          createdAt,
          readySince: createdAt,
        }),
      );
    }
    commits.push(state.commit(transaction));
    if (commits.length >= 64) await Promise.all(commits.splice(0));
  }
  await Promise.all(commits);
}

/** Rewrites the newest value of a key of the writer, under the condition that it is the newest. */
async function rewriteOwnKey(store: StateStore, writer: number): Promise<void> {
  const key = `/bench/own/${writer}`;
  const revision = (await store.get(key))?.modRevision ?? 'absent';
  await store.txn([{ key, is: revision }], [{ put: key, value: VALUE }]);
}

let nextKey = 0;
/** Adds two keys under the condition that they are new. */
async function addKeys(store: StateStore): Promise<void> {
  const key = `/bench/new/${(nextKey += 1)}`;
  await store.txn(
    [{ key, is: 'absent' }],
    [
      { put: key, value: VALUE },
      { put: `${key}/event`, value: VALUE },
    ],
  );
}

/** Writes batches of puts to keys of the writer. */
async function putBatch(store: StateStore, writer: number): Promise<void> {
  const operations = Array.from({ length: PUTS_PER_BATCH }, (_, index) => ({
    put: `/bench/batch/${writer}/${index}`,
    value: VALUE,
  }));
  await store.txn([], operations);
}

/**
 * Changes the readiness of a replica of the writer and adds the event, as a report does, and waits
 * until the view shows both.
 */
async function reportReplica(state: ClusterState, writer: number, writers: number): Promise<void> {
  const own = Math.floor(RECORDS / writers);
  const id = replicaIdOf(writer * own + Math.floor(random.next() * own));
  const stored = state.view().replica(id);
  if (stored === undefined) return violations.check(false, `${id} is missing in the view`);
  const ready = !stored.value.ready;
  const transaction = state.transaction();
  transaction.updateReplica(stored, copyReplica(stored.value, { ready }));
  transaction.event({
    severity: Severity.INFO,
    category: Category.WORKLOAD,
    reason: 'ReplicaReady',
    message: `replica ${id} is ready`,
    replicaId: id,
  });
  await state.commitObserved(transaction);
  violations.check(
    state.view().replica(id)?.value.ready === ready,
    `${id}: the view does not show an acknowledged commit`,
  );
}

/** Duration of fdatasync after a write of one block, microseconds. */
async function measureSync(directory: string) {
  const file = await open(join(directory, 'sync'), 'w');
  const block = new Uint8Array(4_096);
  const samples: number[] = [];
  for (let count = 0; count < SYNCS; count += 1) {
    await file.write(block, 0, block.length, count * block.length);
    const startedAt = systemClock.now();
    await file.datasync();
    samples.push((systemClock.now() - startedAt) * 1_000);
  }
  await file.close();
  return summarise(samples);
}

async function measure(run: () => Promise<Run>) {
  await run(); // not counted: warm-up
  const runs: Run[] = [];
  for (let count = 0; count < RUNS; count += 1) runs.push(await run());
  return {
    perSecond: summarise(runs.map(({ perSecond }) => perSecond)),
    cpuUs: summarise(runs.map(({ cpuUs }) => cpuUs)),
  };
}

async function measureByWriters(transact: (writer: number, writers: number) => Promise<unknown>) {
  const results: Record<string, unknown> = {};
  for (const writers of WRITERS)
    results[`writers${writers}`] = await measure(() =>
      measureWriters(writers, (writer) => transact(writer, writers)),
    );
  return results;
}

const directory = await mkdtemp(join(values.directory, 'cloudless-bench-'));
const options = { clock: systemClock, log: silentLog };
const store = await openLmdbStateStore({ directory: join(directory, 'store'), ...options });
const state = await openClusterState({ store, random: systemRandom, holder: 'bench', ...options });
try {
  const { type } = await statfs(directory);
  await fill(state);
  printReport('store-commit', {
    seed: SEED,
    unit: 'transactions per second, acknowledged after the flush; CPU of this process for each',
    directory: {
      path: values.directory,
      isMemory: type === TMPFS_MAGIC,
      fdatasyncUs: await measureSync(directory),
    },
    records: RECORDS,
    valueBytes: VALUE.length,
    note: 'the view of the cluster state follows in all runs, as in a coordinator',
    rewriteOwnKey: await measureByWriters((writer) => rewriteOwnKey(store, writer)),
    addTwoKeys: await measureByWriters(() => addKeys(store)),
    reportOfReplica: await measureByWriters((writer, writers) =>
      reportReplica(state, writer, writers),
    ),
    putsInBatches: {
      perTransaction: PUTS_PER_BATCH,
      ...(await measure(() =>
        measureWriters(BATCH_WRITERS, (writer) => putBatch(store, writer), PUTS_PER_BATCH),
      )),
    },
    violations: violations.texts,
  });
} finally {
  await state.close();
  await store.close();
  await rm(directory, { recursive: true, force: true });
}
process.exit(violations.exitCode());
