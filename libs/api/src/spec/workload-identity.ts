import type { WorkloadSpec } from '../gen.js';

/**
 * Capability of a node whose agent gets certificates for replicas and hides the key of each replica
 * from the others: the node has a certificate and a container runtime, and runs no plain processes.
 */
export const WORKLOAD_IDENTITY_CAPABILITY = 'identity.workload';

/** Directory in a container with the certificate and the key of the replica. */
export const WORKLOAD_IDENTITY_PATH = '/var/run/cloudless/identity';

/** Name of the volume that is mounted at {@link WORKLOAD_IDENTITY_PATH}. */
export const WORKLOAD_IDENTITY_VOLUME = 'cloudless-identity';

/** Returns true when the replicas of a spec get a certificate of their workload. */
export function requestsIdentity({ identity }: Pick<WorkloadSpec, 'identity'>): boolean {
  return identity !== undefined;
}
