// The store of the `api` benchmark: workloads with specs and replicas of realistic size.
import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  ReplicaStatus_Phase as Phase,
  WorkloadSpecSchema,
  toTemplate,
  type WorkloadSpec,
} from '@cloudless/api';
import {
  ControlRecordSchema,
  NodeRecordSchema,
  ReplicaRecordSchema,
  VersionRecordSchema,
  WorkloadRecordSchema,
} from '@cloudless/api/store';
import { systemClock, systemRandom } from '@cloudless/app-kit';
import { randomHex, silentLog, type Random } from '@cloudless/base';
import {
  openClusterState,
  toNameKeyId,
  toVersionKeyId,
  type ClusterState,
  type Transaction,
} from '@cloudless/cluster-state';
import { openLmdbStateStore } from '@cloudless/state-store-lmdb';

/** What {@link fillStore} writes. */
export interface StoreSize {
  readonly nodes: number;
  readonly workloads: number;
  readonly replicasPerWorkload: number;
}

/** Maximum number of concurrent transactions. */
const IN_FLIGHT = 256;

/** Returns the id of a stored node. Stored nodes have no agent. */
export const formatStoredNodeId = (index: number, { nodes }: Pick<StoreSize, 'nodes'>): string =>
  `stored-${(index % nodes) + 1}`;

/** Returns the name of a stored workload. */
export const formatStoredWorkload = (number: number): string =>
  `shop-${String(number).padStart(5, '0')}-frontend`;

/**
 * Returns a spec as a web service has it: 16 variables, probes, ports, requests and limits, spread
 * over zones; about 1.3 kB when encoded.
 */
export function createRealisticSpec(name: string, replicas: number): WorkloadSpec {
  return create(WorkloadSpecSchema, {
    image: `registry.example.com/shop/${name}:2026.11.22-4f2a91c`,
    args: ['--listen', '0.0.0.0:8080', '--config', '/etc/shop/config.yaml', '--log-format', 'json'],
    env: Object.fromEntries(
      Array.from({ length: 16 }, (_, index) => [
        `SHOP_SETTING_${index}_ENDPOINT`,
        `https://backend-${index}.shop.internal.example.com:8443/v2`,
      ]),
    ),
    labels: {
      app: name,
      'app.example.com/part-of': 'shop',
      'app.example.com/team': 'checkout',
      'app.example.com/tier': 'frontend',
    },
    ports: [
      { name: 'http', containerPort: 8_080 },
      { name: 'metrics', containerPort: 9_090 },
    ],
    replicas,
    resources: {
      requests: { cpuMillis: 100, memoryBytes: 128n * 1024n ** 2n },
      limits: { cpuMillis: 500, memoryBytes: 256n * 1024n ** 2n },
    },
  });
}

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

/** Creates a store with nodes, and with workloads whose replicas all run, in a data directory. */
export async function fillStore(directory: string, size: StoreSize, random: Random): Promise<void> {
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
  for (let index = 0; index < size.nodes; index += 1) {
    const id = formatStoredNodeId(index, size);
    const hello = {
      nodeId: id,
      region: 'europe',
      zone: `zone-${index % 3}`,
      labels: { 'node.example.com/pool': `pool-${index % 8}`, 'node.example.com/disk': 'ssd' },
      capabilities: ['process', 'cri', 'exec', 'port-forward'],
      capacity: { cpuMillis: 64_000, memoryBytes: 256n * 1024n ** 3n },
      reserved: { cpuMillis: 500, memoryBytes: 1024n ** 3n },
      agentVersion: '0.1.0',
      architecture: 'x64',
      operatingSystem: 'linux',
      maxReplicas: 250,
    };
    await writer.write((t) =>
      t.put(
        'node',
        id,
        create(NodeRecordSchema, { id, instanceId: id.padEnd(16, 'x'), createdAt, hello }),
      ),
    );
  }
  for (let number = 0; number < size.workloads; number += 1) {
    const uid = randomHex(random, 8);
    const [namespace, name] = ['default', formatStoredWorkload(number)];
    const spec = createRealisticSpec(name, size.replicasPerWorkload);
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
            nextSequence: BigInt(size.replicasPerWorkload + 1),
            observedGeneration: 1n,
            activeVersion: 1,
          }),
        ),
    );
    for (let sequence = 1; sequence <= size.replicasPerWorkload; sequence += 1) {
      const replica = create(ReplicaRecordSchema, {
        id: `${uid}-${sequence}`,
        uid,
        sequence: BigInt(sequence),
        slot: sequence - 1,
        version: 1,
        nodeId: formatStoredNodeId(number * size.replicasPerWorkload + sequence, size),
        desiredRunning: true,
        phase: Phase.RUNNING,
        ready: true,
        containerId: randomHex(random, 32),
        createdAt,
        readySince: createdAt,
        endpoints: [
          { portName: 'http', ip: '10.20.30.40', port: 8_080 },
          { portName: 'metrics', ip: '10.20.30.40', port: 9_090 },
        ],
        container: {
          pid: 12_345,
          startedAt: createdAt,
          runtime: 'cri',
          ip: '10.20.30.40',
          imageDigest: `sha256:${'4f'.repeat(32)}`,
        },
      });
      await writer.write((t) => t.createReplica(replica));
    }
  }
  await writer.end();
  await state.close();
  await store.close();
}
