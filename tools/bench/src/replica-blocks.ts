// Replica blocks, a store layout that was evaluated in docs/decisions/0024-replica-records.md: many
// replicas of a workload in one packed record, beside one record for each replica.
import { mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '@cloudless/app-kit';
import { createSeededRandom, randomHex } from '@cloudless/base';
import type { ReplicaRecord } from '@cloudless/api/store';
import { decodeRecord, encodeRecord, toReplicaKeyId } from '@cloudless/cluster-state';
import type { Compare, Operation, Revision, StateStore } from '@cloudless/state-store';
import { openLmdbStateStore } from '@cloudless/state-store-lmdb';
import {
  createColumns,
  decodeColumns,
  encodeColumns,
  setReplica,
  type ReplicaColumns,
} from './replica-block.js';
import { printReport } from './report.js';
import { createRunningReplica } from './stored-cluster.js';
import { Violations } from './violations.js';

const SEED = 1;
const WORKLOADS = 200;
/** Replicas of one workload. */
const REPLICAS = 256;
const PLACED_PER_COMMIT = 100;
/** Reports in one commit, each of another random replica. */
const REPORTS_PER_COMMIT = 48;
const REPORT_COMMITS = 400;
const NODES = 5_000;
/** Transactions that are prepared before the first of them is committed. */
const IN_FLIGHT = 4;

const random = createSeededRandom(SEED);
const violations = new Violations();
const uids = Array.from({ length: WORKLOADS }, () => randomHex(random, 8));
const replicas: readonly (readonly ReplicaRecord[])[] = uids.map((uid) =>
  Array.from({ length: REPLICAS }, (_, index) =>
    createRunningReplica(random, uid, index + 1, `node-${1 + Math.floor(random.next() * NODES)}`),
  ),
);
const pick = (limit: number): number => Math.floor(random.next() * limit);
const requireReplica = (workload: number, index: number): ReplicaRecord => {
  const replica = replicas[workload]?.[index];
  if (replica === undefined) throw new RangeError(`there is no replica ${index}`);
  return replica;
};

/** A layout of replicas in the store. */
interface Layout {
  readonly name: string;
  /** Adds the writes of replicas of one workload, each replica once. */
  write(workload: number, indexes: readonly number[]): void;
  /** Takes the transaction that was built by `write`. */
  take(): { readonly compares: Compare[]; readonly operations: Operation[]; bytes: number };
  /** Notes that a transaction was committed. */
  confirm(operations: readonly Operation[], revision: Revision): void;
  /** Decodes a stored value. */
  decode(key: string, value: Uint8Array): number;
}

abstract class KeyedLayout {
  private readonly revisions = new Map<string, Revision>();
  private readonly writes = new Map<string, Uint8Array>();

  protected put(key: string, value: Uint8Array): void {
    this.writes.set(key, value);
  }

  take() {
    const compares = [...this.writes.keys()].map((key): Compare => ({
      key,
      is: this.revisions.get(key) ?? 'absent',
    }));
    const operations = [...this.writes].map(([put, value]): Operation => ({ put, value }));
    const bytes = [...this.writes.values()].reduce((sum, { byteLength }) => sum + byteLength, 0);
    this.writes.clear();
    return { compares, operations, bytes };
  }

  confirm(operations: readonly Operation[], revision: Revision): void {
    for (const operation of operations)
      if ('put' in operation) this.revisions.set(operation.put, revision);
  }
}

class SingleRecords extends KeyedLayout implements Layout {
  readonly name = 'one record for each replica';

  write(workload: number, indexes: readonly number[]): void {
    for (const index of indexes) {
      const replica = requireReplica(workload, index);
      const key = `/replica/${toReplicaKeyId(replica.uid, replica.sequence)}`;
      this.put(key, encodeRecord('replica', replica).bytes);
    }
  }

  decode(key: string, value: Uint8Array): number {
    return decodeRecord('replica', key, value).id === '' ? 0 : 1;
  }
}

class Blocks extends KeyedLayout implements Layout {
  readonly name: string;
  private readonly blocks = new Map<string, ReplicaColumns>();

  constructor(private readonly size: number) {
    super();
    this.name = `blocks of ${size}`;
  }

  write(workload: number, indexes: readonly number[]): void {
    const changed = new Set<string>();
    for (const index of indexes) {
      const key = `/block/${uids[workload] ?? ''}/${Math.floor(index / this.size)}`;
      const block = this.blocks.get(key) ?? createColumns(this.size);
      this.blocks.set(key, block);
      setReplica(block, index % this.size, requireReplica(workload, index));
      changed.add(key);
    }
    for (const key of changed)
      this.put(key, encodeColumns(this.blocks.get(key) ?? createColumns(0)));
  }

  decode(_key: string, value: Uint8Array): number {
    return decodeColumns(value).sequence.filter((sequence) => sequence > 0).length;
  }
}

/** Runs transactions and adds up their cost. */
class Meter {
  private readonly startedCpu = process.cpuUsage();
  private bytes = 0;
  private puts = 0;
  private commits = 0;
  conflicts = 0;

  constructor(
    private readonly store: StateStore,
    private readonly layout: Layout,
  ) {}

  /** Prepares all transactions, then commits one after the other, as a busy coordinator does. */
  async commit(prepare: readonly (() => void)[]): Promise<void> {
    const prepared = prepare.map((write) => {
      write();
      return this.layout.take();
    });
    for (const { compares, operations, bytes } of prepared) {
      this.commits += 1;
      this.puts += operations.length;
      this.bytes += bytes;
      try {
        const { revision } = await this.store.txn(compares, operations);
        this.layout.confirm(operations, revision);
      } catch {
        this.conflicts += 1;
      }
    }
  }

  summarise(changes: number) {
    const { user, system } = process.cpuUsage(this.startedCpu);
    const round = (value: number): number => Math.round(value * 100) / 100;
    return {
      changes,
      commits: this.commits,
      cpuUsPerChange: round((user + system) / changes),
      putsPerChange: round(this.puts / changes),
      bytesPerChange: round(this.bytes / changes),
      conflictsPerCommit: round(this.conflicts / this.commits),
    };
  }
}

async function measure(layout: Layout) {
  const directory = await mkdtemp(join(tmpdir(), 'cloudless-blocks-'));
  let store = await openLmdbStateStore({ directory, clock: systemClock });
  try {
    const placing = new Meter(store, layout);
    for (let workload = 0; workload < WORKLOADS; workload += 1)
      for (let from = 0; from < REPLICAS; from += PLACED_PER_COMMIT) {
        const count = Math.min(PLACED_PER_COMMIT, REPLICAS - from);
        const indexes = Array.from({ length: count }, (_, index) => from + index);
        await placing.commit([() => layout.write(workload, indexes)]);
      }
    const placement = placing.summarise(WORKLOADS * REPLICAS);
    const spread = new Meter(store, layout);
    for (let round = 0; round < REPORT_COMMITS / IN_FLIGHT; round += 1)
      await spread.commit(
        Array.from({ length: IN_FLIGHT }, () => () => {
          for (let report = 0; report < REPORTS_PER_COMMIT; report += 1)
            layout.write(pick(WORKLOADS), [pick(REPLICAS)]);
        }),
      );
    const reportsOfAllWorkloads = spread.summarise(REPORT_COMMITS * REPORTS_PER_COMMIT);
    const dense = new Meter(store, layout);
    for (let round = 0; round < REPORT_COMMITS / IN_FLIGHT; round += 1) {
      const workload = pick(WORKLOADS);
      await dense.commit(
        Array.from({ length: IN_FLIGHT }, () => () => {
          const from = pick(REPLICAS - REPORTS_PER_COMMIT);
          layout.write(
            workload,
            Array.from({ length: REPORTS_PER_COMMIT }, (_, index) => from + index),
          );
        }),
      );
    }
    const reportsOfOneWorkload = dense.summarise(REPORT_COMMITS * REPORTS_PER_COMMIT);
    await store.close();
    const fileMb = Math.round((await stat(join(directory, 'store.mdb'))).size / 1e6);
    const startedCpu = process.cpuUsage();
    store = await openLmdbStateStore({ directory, clock: systemClock });
    let loaded = 0;
    let after: string | undefined;
    do {
      const page = await store.range({ prefix: '/', ...(after === undefined ? {} : { after }) });
      for (const { key, value } of page.entries) loaded += layout.decode(key, value);
      after = page.next;
    } while (after !== undefined);
    const { user, system } = process.cpuUsage(startedCpu);
    violations.check(
      loaded === WORKLOADS * REPLICAS,
      `${layout.name}: ${loaded} replicas loaded of ${WORKLOADS * REPLICAS}`,
    );
    const start = { cpuUsPerReplica: Math.round((100 * (user + system)) / loaded) / 100 };
    return {
      layout: layout.name,
      placement,
      reportsOfAllWorkloads,
      reportsOfOneWorkload,
      start,
      fileMb,
    };
  } finally {
    await store.close();
    await rm(directory, { recursive: true });
  }
}

const layouts = [];
for (const create of [
  () => new SingleRecords(),
  () => new Blocks(64),
  () => new Blocks(128),
  () => new Blocks(256),
]) {
  await measure(create()); // warms up
  layouts.push(await measure(create()));
}
printReport('replica-blocks', {
  unit: 'CPU microseconds of the process, with encoding, LMDB and its flush',
  seed: SEED,
  ...{ workloads: WORKLOADS, replicasPerWorkload: REPLICAS, inFlight: IN_FLIGHT },
  layouts,
  violations: violations.texts,
});
process.exit(violations.exitCode());
