import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { ReplicaStatus_Phase as Phase, WorkloadSpecSchema, toTemplate } from '@cloudless/api';
import {
  ControlRecordSchema,
  NodeRecordSchema,
  ReplicaRecordSchema,
  VersionRecordSchema,
  WorkloadRecordSchema,
  type ReplicaRecord,
} from '@cloudless/api/store';
import { systemClock, systemRandom } from '@cloudless/app-kit';
import { createSeededRandom, randomHex, silentLog, type Random } from '@cloudless/base';
import {
  Transaction,
  openClusterState,
  toNameKeyId,
  toVersionKeyId,
} from '@cloudless/cluster-state';
import { MAX_TXN_OPERATIONS, type StateStore } from '@cloudless/state-store';
import { openLmdbStateStore } from '@cloudless/state-store-lmdb';

/** Size of a cluster whose replicas all run. */
export interface StoredClusterSize {
  readonly nodes: number;
  readonly workloads: number;
  readonly replicasPerWorkload: number;
  readonly seed: number;
}

/** Maximum number of concurrent transactions. */
const IN_FLIGHT = 256;

/** Writes records straight into a store, in full transactions. */
class DirectWriter {
  private transaction = createTransaction();
  private readonly inFlight = new Set<Promise<unknown>>();

  constructor(private readonly store: StateStore) {}

  /** @param count - Number of records that `addRecords` adds. */
  async write(count: number, addRecords: (transaction: Transaction) => void): Promise<void> {
    if (this.transaction.size + count > MAX_TXN_OPERATIONS) await this.flush();
    addRecords(this.transaction);
  }

  async end(): Promise<void> {
    await this.flush();
    await Promise.all(this.inFlight);
  }

  private async flush(): Promise<void> {
    const { transaction } = this;
    const commit = this.store
      .txn([], transaction.toOperations())
      .finally(() => this.inFlight.delete(commit));
    this.inFlight.add(commit);
    this.transaction = createTransaction();
    if (this.inFlight.size >= IN_FLIGHT) await Promise.race(this.inFlight);
  }
}

/** The fill writes no events, so that ids and times of events are never used. */
function createTransaction(): Transaction {
  return new Transaction({ nextId: () => '', nowMs: () => 0 });
}

/**
 * Creates a store with nodes, workloads and running replicas, without a coordinator.
 * @param directory - Data directory of the coordinator that will open the store.
 */
export async function writeStoredCluster(
  directory: string,
  { nodes, workloads, replicasPerWorkload, seed }: StoredClusterSize,
): Promise<void> {
  const random = createSeededRandom(seed);
  const store = await openLmdbStateStore({ directory, clock: systemClock, sync: false });
  const identity = { clock: systemClock, random: systemRandom, log: silentLog };
  await (await openClusterState({ store, ...identity, holder: 'bench' })).close();
  const writer = new DirectWriter(store);
  const createdAt = timestampFromMs(systemClock.wallTime());
  for (let index = 0; index < nodes; index += 1) {
    const id = formatNodeId(index);
    const hello = {
      nodeId: id,
      zone: `zone-${index % 3}`,
      capacity: { cpuMillis: 64_000, memoryBytes: 256n * 1024n ** 3n },
    };
    const node = create(NodeRecordSchema, { id, instanceId: id.padEnd(16, 'x'), createdAt, hello });
    await writer.write(1, (t) => t.put('node', id, node));
  }
  for (let number = 0; number < workloads; number += 1) {
    const uid = randomHex(random, 8);
    await writer.write(4, (t) => putWorkload(t, uid, `workload-${number}`, replicasPerWorkload));
    for (let sequence = 1; sequence <= replicasPerWorkload; sequence += 1) {
      const nodeId = formatNodeId((number * replicasPerWorkload + sequence) % nodes);
      const replica = createRunningReplica(random, uid, sequence, nodeId);
      await writer.write(1, (t) => t.createReplica(replica));
    }
  }
  await writer.end();
  await store.close();
}

function formatNodeId(index: number): string {
  return `node-${index + 1}`;
}

function putWorkload(t: Transaction, uid: string, name: string, replicas: number): void {
  const createdAt = timestampFromMs(systemClock.wallTime());
  const namespace = 'default';
  const spec = create(WorkloadSpecSchema, {
    command: ['serve'],
    replicas,
    labels: { app: name },
    resources: { requests: { cpuMillis: 100, memoryBytes: 100n * 1024n ** 2n } },
  });
  t.put('name', toNameKeyId(namespace, name), create(WorkloadRecordSchema, { uid }))
    .put(
      'workload',
      uid,
      create(WorkloadRecordSchema, {
        ...{ uid, namespace, name, spec, createdAt },
        generation: 1n,
        version: 1,
      }),
    )
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
        nextSequence: BigInt(replicas + 1),
        observedGeneration: 1n,
        activeVersion: 1,
      }),
    );
}

/** Creates a replica as the coordinator stores it once it is ready. */
export function createRunningReplica(
  random: Random,
  uid: string,
  sequence: number,
  nodeId: string,
): ReplicaRecord {
  const createdAt = timestampFromMs(systemClock.wallTime());
  return create(ReplicaRecordSchema, {
    id: `${uid}-${sequence}`,
    uid,
    sequence: BigInt(sequence),
    slot: sequence - 1,
    version: 1,
    nodeId,
    desiredRunning: true,
    phase: Phase.RUNNING,
    ready: true,
    containerId: randomHex(random, 32),
    createdAt,
    readySince: createdAt,
    orderRevision: 1_000_000n + BigInt(sequence),
    endpoints: [{ portName: 'http', ip: '10.0.0.1', port: 8_080 }],
  });
}
