import { createHash } from 'node:crypto';
import { toContainerId, type ContainerId } from '@cloudless/base';
import type { ContainerOwner } from './container-labels.js';

/**
 * Returns the id of one container of a replica. The same start always has the same id, also in the
 * next agent process: when an agent ends after it has sent a start to the runtime, the start of its
 * successor meets the earlier container instead of adding a second container.
 * @param start - `restarts`: restarts in place and failed starts of the replica before this
 *   container, so that the attempt after a failed start has another id.
 */
export function createContainerId({
  clusterId,
  nodeId,
  replicaId,
  restarts,
}: Pick<ContainerOwner, 'clusterId' | 'nodeId' | 'replicaId' | 'restarts'>): ContainerId {
  const parts = [clusterId, nodeId, replicaId, restarts].join('\0');
  return toContainerId(createHash('sha256').update(parts).digest('hex'));
}
