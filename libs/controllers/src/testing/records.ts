import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { ReplicaStatus_Phase as Phase, type WorkloadSpecSchema } from '@cloudless/api';
import {
  ControlRecordSchema,
  NodeRecordSchema,
  ReplicaRecordSchema,
  WorkloadRecordSchema,
  type NodeRecord,
} from '@cloudless/api/store';
import { NO_PINS, createVersionRecord, type SnapshotRecords } from '@cloudless/cluster-state';
import { aSpec } from './test-bed.js';

/** A workload of {@link aSnapshot}: its spec, and the nodes of its ready replicas. */
export interface SnapshotWorkload {
  readonly spec: MessageInitShape<typeof WorkloadSpecSchema>;
  /** One replica for each item. An empty id: the replica waits for a node. */
  readonly on: readonly string[];
}

/** A node with 4 CPUs and 8 GiB that runs processes. */
export function aNodeRecord(id: string, zone = '', cpuMillis = 4_000): NodeRecord {
  return create(NodeRecordSchema, {
    id,
    hello: {
      nodeId: id,
      zone,
      capacity: { cpuMillis, memoryBytes: 8n * 1024n ** 3n },
      capabilities: ['runtime.process'],
    },
  });
}

/** The records of workloads whose rollouts have completed. Workloads are in namespace `default`. */
export function aSnapshot(
  nodes: readonly NodeRecord[],
  workloads: Readonly<Record<string, SnapshotWorkload>>,
): SnapshotRecords {
  const all = Object.entries(workloads).map(([uid, { spec, on }]) => ({
    uid,
    on,
    spec: aSpec({ replicas: on.length, ...spec }),
  }));
  return {
    revision: 7n,
    nodes,
    workloads: all.map(({ uid, spec }) =>
      create(WorkloadRecordSchema, {
        ...{ uid, spec, namespace: 'default', name: uid, generation: 1n, version: 1 },
      }),
    ),
    versions: all.map(
      ({ uid, spec }) =>
        [
          uid,
          createVersionRecord(spec, { version: 1, nowMs: 0, earlier: [], pins: NO_PINS }),
        ] as const,
    ),
    controls: all.map(({ uid, on }) =>
      create(ControlRecordSchema, {
        ...{ uid, nextSequence: BigInt(on.length + 1), observedGeneration: 1n, activeVersion: 1 },
        rollout: { version: 1 },
      }),
    ),
    replicas: all.flatMap(({ uid, on }) =>
      on.map((nodeId, index) =>
        create(ReplicaRecordSchema, {
          ...{ id: `${uid}-${index + 1}`, uid, nodeId, sequence: BigInt(index + 1), version: 1 },
          desiredRunning: true,
          phase: nodeId === '' ? Phase.PENDING : Phase.RUNNING,
          ready: nodeId !== '',
          reason: nodeId === '' ? 'no node fits: full' : '',
        }),
      ),
    ),
  };
}
