import { create } from '@bufbuild/protobuf';
import { ReplicaUsageSchema, type ReplicaUsage } from '@cloudless/api';
import type { ContainerStatistics } from './stats-sampler.js';

/** Returns the usage of each replica in its newest sample; of replicas without a sample nothing. */
export function toReplicaUsages(containers: readonly ContainerStatistics[]): ReplicaUsage[] {
  return containers.flatMap(({ owner: { replicaId }, sample, rates }) => {
    const memory = sample?.memory?.workingSetBytes ?? sample?.memory?.usageBytes;
    const cpuMillis = rates?.cpuMillis;
    if (memory === undefined && cpuMillis === undefined) return [];
    return create(ReplicaUsageSchema, {
      replicaId,
      ...(cpuMillis === undefined ? {} : { cpuMillis: Math.max(0, Math.round(cpuMillis)) }),
      ...(memory === undefined ? {} : { memoryBytes: BigInt(Math.max(0, Math.round(memory))) }),
    });
  });
}
