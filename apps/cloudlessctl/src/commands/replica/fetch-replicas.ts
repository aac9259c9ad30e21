import { withDefaults } from '@cloudless/api';
import type { Workload } from '@cloudless/api';
import type { CliSession } from '../../call/cli-session.js';
import type { PlacedReplica } from '../../views/replica-list-view.js';
import { listAllWorkloads } from '../workload/fetch-workloads.js';

/** Selects replicas. A field that is absent selects every value. */
export interface ReplicaFilter {
  /** Default: all namespaces. */
  readonly namespace?: string;
  /** Name of the workload, in the namespace. */
  readonly workload?: string;
  /** Conditions for the labels of the workload. */
  readonly labelSelector?: string;
  readonly nodeId?: string;
}

/**
 * Returns the replicas that match a filter, by workload and slot. The coordinator sends only the
 * workloads with a replica on the node when the filter has a node.
 */
export async function fetchReplicas(
  session: CliSession,
  { namespace = '', workload, labelSelector = '', nodeId = '' }: ReplicaFilter,
): Promise<readonly PlacedReplica[]> {
  const workloads =
    workload === undefined
      ? await listAllWorkloads(session, { namespace, labelSelector, nodeId, includeReplicas: true })
      : [await session.client.getWorkload({ namespace, name: workload }, session.getCallOptions())];
  return workloads.flatMap(toPlacedReplicas).filter((item) => isOnNode(item, nodeId));
}

/** Returns the replicas of a workload with its names, by slot. */
export function toPlacedReplicas({
  namespace,
  name,
  spec,
  status,
}: Workload): readonly PlacedReplica[] {
  const requests = spec === undefined ? undefined : withDefaults(spec).resources?.requests;
  return [...(status?.replicas ?? [])]
    .sort((a, b) => a.slot - b.slot)
    .map((replica) => ({ namespace, workload: name, requests, replica }));
}

/** Returns true for a replica on a node; an empty id means any node. */
export function isOnNode({ replica }: PlacedReplica, nodeId: string): boolean {
  return nodeId === '' || replica.nodeId === nodeId;
}
