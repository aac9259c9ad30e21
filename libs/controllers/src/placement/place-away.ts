import type { ControlRecord } from '@cloudless/api/store';
import { toNodeId, toReplicaId, type NodeId } from '@cloudless/base';
import { toCanonicalVersion, type ClusterView } from '@cloudless/cluster-state';
import type { Cluster, Placement, PlacementRequest } from '@cloudless/scheduler';
import { findRequestedEviction } from '../drain/eviction.js';

/**
 * Returns the nodes that replicas of a workload leave or have left on request, and that new
 * replicas of a version therefore avoid. None for a version that is not active: the new replicas
 * of an update replace no moved replica.
 * @param nowMs - Wall-clock milliseconds: the request ends by time.
 */
export function findLeftNodes(
  view: Pick<ClusterView, 'version'>,
  control: ControlRecord | undefined,
  version: number,
  nowMs: number,
): readonly NodeId[] {
  const { nodeIds } = findRequestedEviction(control, nowMs);
  if (control === undefined || nodeIds.size === 0) return [];
  const toCanonical = (number: number): number => toCanonicalVersion(view, control.uid, number);
  return toCanonical(version) === toCanonical(control.activeVersion)
    ? [...nodeIds].map(toNodeId)
    : [];
}

/**
 * Chooses nodes for `count` replicas as `Cluster.place` does, and the nodes `leftNodes` only for
 * replicas that no other node fits. The cluster is unchanged afterwards.
 */
export function placeAway(
  cluster: Pick<Cluster, 'node' | 'upsertNode' | 'place' | 'reserve' | 'release'>,
  request: PlacementRequest,
  count: number,
  leftNodes: readonly NodeId[],
): readonly Placement[] {
  const nodes = leftNodes.flatMap((id) => cluster.node(id) ?? []);
  if (nodes.length === 0) return cluster.place(request, count);
  for (const node of nodes)
    cluster.upsertNode({ ...node, availability: { ...node.availability, cordoned: true } });
  let placements: readonly Placement[];
  try {
    placements = cluster.place(request, count);
  } finally {
    for (const node of nodes) cluster.upsertNode(node);
  }
  const placed = placements.filter((placement) => placement.placed);
  if (placed.length === count) return placed;
  const reservations = placed.map(({ nodeId }, index) => ({
    ...request,
    replicaId: toReplicaId(`${request.workloadId}/placed-${index}`),
    nodeId,
  }));
  for (const reservation of reservations) cluster.reserve(reservation);
  try {
    return [...placed, ...cluster.place(request, count - placed.length)];
  } finally {
    for (const { replicaId } of reservations) cluster.release(replicaId);
  }
}
