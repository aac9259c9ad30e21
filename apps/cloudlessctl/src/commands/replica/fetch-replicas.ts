import { withDefaults } from '@cloudless/api';
import type { ReplicaStatus, Workload } from '@cloudless/api';
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
  /**
   * Uids of the workloads whose replicas are complete: of other workloads with very many replicas,
   * some may be missing. Default: all workloads.
   */
  readonly uids?: ReadonlySet<string>;
}

/** Replicas of one page: the most that the API allows. */
const PAGE_SIZE = 1_000;

/**
 * Returns the replicas that match a filter, by workload and slot. The coordinator sends only the
 * workloads with a replica on the node when the filter has a node.
 */
export async function fetchReplicas(
  session: CliSession,
  { namespace = '', workload, labelSelector = '', nodeId = '', uids }: ReplicaFilter,
): Promise<readonly PlacedReplica[]> {
  const workloads =
    workload === undefined
      ? await listAllWorkloads(session, { namespace, labelSelector, nodeId, includeReplicas: true })
      : [await session.client.getWorkload({ namespace, name: workload }, session.getCallOptions())];
  for (const found of workloads)
    if (uids?.has(found.uid) ?? true) await addOmittedReplicas(session, found, nodeId);
  return workloads.flatMap(toPlacedReplicas).filter((item) => isOnNode(item, nodeId));
}

/**
 * Puts all replicas into the status of a workload whose answer omitted some, read page by page.
 * @param nodeId - Only the replicas on this node; empty for all nodes.
 */
async function addOmittedReplicas(
  session: CliSession,
  { namespace, name, uid, status }: Workload,
  nodeId: string,
): Promise<void> {
  if (status === undefined || status.omittedReplicas === 0) return;
  const replicas: ReplicaStatus[] = [];
  let pageToken = '';
  do {
    const page = await session.client.listReplicas(
      { namespace, name, nodeId, pageSize: PAGE_SIZE, pageToken },
      session.getCallOptions(),
    );
    // A workload that was meanwhile deleted and created again has another uid.
    for (const group of page.workloads) if (group.uid === uid) replicas.push(...group.replicas);
    pageToken = page.nextPageToken;
  } while (pageToken !== '');
  status.replicas = replicas;
  status.omittedReplicas = 0;
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
