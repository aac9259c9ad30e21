// Reads of a coordinator with 5 000 nodes and 150 000 replicas, over gRPC on one connection.
import { join } from 'node:path';
import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  ReplicaStatus_Phase as Phase,
  WatchWorkloadsResponse_Kind as WatchKind,
  WorkloadSpecSchema,
  toTemplate,
} from '@cloudless/api';
import {
  ControlRecordSchema,
  NodeRecordSchema,
  ReplicaRecordSchema,
  VersionRecordSchema,
  WorkloadRecordSchema,
} from '@cloudless/api/store';
import { createSeededRandom, randomHex, silentLog } from '@cloudless/base';
import {
  toNameKeyId,
  openClusterState,
  toVersionKeyId,
  type ClusterState,
  type Transaction,
} from '@cloudless/cluster-state';
import { RealCluster } from '@cloudless/e2e';
import { openLmdbStateStore } from '@cloudless/state-store-lmdb';
import { systemClock, systemRandom } from '@cloudless/app-kit';
import { readCpuSeconds, readMemoryBytes } from './process-figures.js';
import { printReport, summarise } from './report.js';
import { Violations } from './violations.js';

const NODES = 5_000;
const WORKLOADS = 1_500;
const REPLICAS_PER_WORKLOAD = 100;
/** Measured calls of each kind. */
const CALLS = 500;
/** Measured pages of each list. */
const PAGES = 100;
const SEED = 1;
/** Maximum number of concurrent transactions. */
const IN_FLIGHT = 256;

const random = createSeededRandom(SEED);
const formatNodeId = (index: number): string => `node-${(index % NODES) + 1}`;

/**
 * Writes records in transactions of about 90 records, with many transactions in parallel. A
 * transaction may have at most 100 writes.
 */
class BulkWriter {
  private transaction: Transaction;
  private readonly inFlight = new Set<Promise<unknown>>();

  constructor(private readonly state: ClusterState) {
    this.transaction = state.transaction();
  }

  async write(addRecords: (transaction: Transaction) => void): Promise<void> {
    addRecords(this.transaction);
    if (this.transaction.size >= 90) await this.flush();
  }

  async flush(): Promise<void> {
    const commit = this.state.commit(this.transaction).finally(() => this.inFlight.delete(commit));
    this.inFlight.add(commit);
    this.transaction = this.state.transaction();
    if (this.inFlight.size >= IN_FLIGHT) await Promise.race(this.inFlight);
  }

  async end(): Promise<void> {
    await this.flush();
    await Promise.all(this.inFlight);
  }
}

/** Creates a store with all records in a data directory. */
async function fillStore(directory: string): Promise<void> {
  const options = { clock: systemClock, log: silentLog };
  const store = await openLmdbStateStore({ directory, ...options });
  const state = await openClusterState({
    store,
    random: systemRandom,
    holder: 'bench',
    ...options,
  });
  const writer = new BulkWriter(state);
  const createdAt = timestampFromMs(systemClock.wallTime());
  for (let index = 0; index < NODES; index += 1) {
    const id = formatNodeId(index);
    const hello = {
      nodeId: id,
      zone: `zone-${index % 3}`,
      capacity: { cpuMillis: 64_000, memoryBytes: 256n * 1024n ** 3n },
    };
    await writer.write((t) =>
      t.put(
        'node',
        id,
        create(NodeRecordSchema, { id, instanceId: id.padEnd(16, 'x'), createdAt, hello }),
      ),
    );
  }
  for (let number = 0; number < WORKLOADS; number += 1) {
    const uid = randomHex(random, 8);
    const [namespace, name] = ['default', `workload-${number}`];
    const spec = create(WorkloadSpecSchema, {
      command: ['serve'],
      replicas: REPLICAS_PER_WORKLOAD,
      labels: { app: name },
    });
    const record = create(WorkloadRecordSchema, {
      uid,
      namespace,
      name,
      spec,
      generation: 1n,
      version: 1,
      createdAt,
    });
    await writer.write((t) =>
      t
        .put('name', toNameKeyId(namespace, name), create(WorkloadRecordSchema, { uid }))
        .put('workload', uid, record)
        .put(
          'version',
          toVersionKeyId(uid, 1),
          create(VersionRecordSchema, { version: 1, template: toTemplate(spec), createdAt }),
        )
        .put(
          'control',
          uid,
          create(ControlRecordSchema, {
            uid,
            nextSequence: BigInt(REPLICAS_PER_WORKLOAD + 1),
            observedGeneration: 1n,
            activeVersion: 1,
          }),
        ),
    );
    for (let sequence = 1; sequence <= REPLICAS_PER_WORKLOAD; sequence += 1) {
      const replica = create(ReplicaRecordSchema, {
        id: `${uid}-${sequence}`,
        uid,
        sequence: BigInt(sequence),
        slot: sequence - 1,
        version: 1,
        nodeId: formatNodeId(number * REPLICAS_PER_WORKLOAD + sequence),
        desiredRunning: true,
        phase: Phase.RUNNING,
        ready: true,
        containerId: randomHex(random, 32),
        createdAt,
        readySince: createdAt,
        endpoints: [{ portName: 'http', ip: '10.0.0.1', port: 8_080 }],
      });
      await writer.write((t) => t.createReplica(replica));
    }
  }
  await writer.end();
  await state.close();
  await store.close();
}

/**
 * Runs calls one after the other.
 * @returns The duration of each call, milliseconds.
 */
async function measureCalls(
  count: number,
  call: (index: number) => Promise<unknown>,
): Promise<readonly number[]> {
  const samples: number[] = [];
  for (let index = 0; index < count; index += 1) {
    const startedAt = systemClock.now();
    await call(index);
    samples.push(systemClock.now() - startedAt);
  }
  return samples;
}

const violations = new Violations();
// These nodes have no agents; a long lease keeps them from being lost during the benchmark.
process.env['CLOUDLESS_COORDINATOR_LEASE'] = '10m';
const cluster = await RealCluster.start([], (directory) =>
  fillStore(join(directory, 'coordinator')),
);
try {
  const { client } = cluster;
  const { pid } = cluster.coordinatorProcess;
  const memoryMb = Math.round(readMemoryBytes(pid) / 1e6);
  const pickName = (): string => `workload-${Math.floor(random.next() * WORKLOADS)}`;
  await measureCalls(CALLS, () => client.getWorkload({ name: pickName() })); // warm up
  const get = await measureCalls(CALLS, () => client.getWorkload({ name: pickName() }));
  const getNode = await measureCalls(CALLS, (index) =>
    client.getNode({ nodeId: formatNodeId(index * 7) }),
  );
  let pageToken = '';
  const page = await measureCalls(PAGES, async () => {
    const response = await client.listWorkloads({ pageSize: 100, pageToken });
    pageToken = response.nextPageToken;
  });
  pageToken = '';
  const nodePage = await measureCalls(PAGES, async () => {
    const response = await client.listNodes({ pageSize: 100, pageToken });
    pageToken = response.nextPageToken;
  });
  const cpuBefore = readCpuSeconds(pid);
  const startedAt = systemClock.now();
  let replicas = 0;
  let items = 0;
  const watch = new AbortController();
  for await (const { kind, workload } of client.watchWorkloads({}, { signal: watch.signal })) {
    if (kind === WatchKind.SYNCED) break;
    items += 1;
    replicas += workload?.status?.replicas.length ?? 0;
  }
  const seconds = (systemClock.now() - startedAt) / 1_000;
  watch.abort();
  violations.check(items === WORKLOADS, `the watch showed ${items} of ${WORKLOADS} workloads`);
  const stored = WORKLOADS * REPLICAS_PER_WORKLOAD;
  violations.check(replicas === stored, `the watch showed ${replicas} of ${stored} replicas`);
  printReport('api', {
    nodes: NODES,
    workloads: WORKLOADS,
    replicas: WORKLOADS * REPLICAS_PER_WORKLOAD,
    seed: SEED,
    transport: 'gRPC, one connection, one call at a time; client and server on the same machine',
    unit: 'ms per call',
    getWorkloadOf100Replicas: summarise(get),
    getNode: summarise(getNode),
    listWorkloadsPageOf100: summarise(page),
    listNodesPageOf100: summarise(nodePage),
    watchAll: {
      items,
      replicas,
      seconds: Math.round(seconds * 100) / 100,
      replicasPerSecond: Math.round(replicas / seconds),
      coordinatorCpuSeconds: Math.round((readCpuSeconds(pid) - cpuBefore) * 100) / 100,
    },
    coordinatorMemoryMb: memoryMb,
    violations: violations.texts,
  });
} finally {
  await cluster.stop();
}
process.exit(violations.exitCode());
