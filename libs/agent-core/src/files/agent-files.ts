import { fromBinary } from '@bufbuild/protobuf';
import {
  FILES_CAPABILITY,
  IMAGE_CREDENTIALS_CAPABILITY,
  OrderSchema,
  type WorkloadSpec,
} from '@cloudless/api';
import type { AgentOptions } from '../agent-options.js';
import type { NodeReplicas } from '../replica/node-replicas.js';
import type { StoredReplica } from '../store/agent-store.js';
import { usesFiles } from './file-refs.js';
import { ReplicaFiles } from './replica-files.js';

/** Returns the secrets and configs of replicas; undefined on a node without a place for them. */
export function createReplicaFiles(
  { replicaFiles, nodeId, clock, random, log }: AgentOptions,
  findReplicas: () => Pick<NodeReplicas, 'sendSignal' | 'reportFiles'>,
): ReplicaFiles | undefined {
  if (replicaFiles === undefined) return undefined;
  return new ReplicaFiles({
    store: replicaFiles,
    sendSignal: (replicaId, signal) => findReplicas().sendSignal(replicaId, signal),
    report: (replicaId, reason) => findReplicas().reportFiles(replicaId, reason),
    ...{ nodeId, clock, random },
    log: log.child({ component: 'files' }),
  });
}

/** Returns the capabilities of a node that delivers secrets and configs. */
export function listFileCapabilities({
  replicaFiles,
  runtime,
}: Pick<AgentOptions, 'replicaFiles' | 'runtime'>): readonly string[] {
  if (replicaFiles === undefined) return [];
  return runtime.capabilities().includes('runtime.cri')
    ? [FILES_CAPABILITY, IMAGE_CREDENTIALS_CAPABILITY]
    : [FILES_CAPABILITY];
}

/** Returns the specs of the replicas that use secrets or configs, by replica id. */
export function listFileSpecs(stored: readonly StoredReplica[]): ReadonlyMap<string, WorkloadSpec> {
  return new Map(
    stored.flatMap(({ replicaId, start }) => {
      const order = start === undefined ? undefined : fromBinary(OrderSchema, start).order;
      const spec = order?.case === 'start' ? order.value.spec : undefined;
      return spec !== undefined && usesFiles(spec) ? [[replicaId, spec] as const] : [];
    }),
  );
}
