import { create } from '@bufbuild/protobuf';
import {
  DrainStatusSchema,
  DrainStatus_Phase as DrainPhase,
  type DrainStatus,
} from '@cloudless/api';
import type { NodeRecord, ReplicaRecord } from '@cloudless/api/store';
import { definedFields } from '@cloudless/base';
import { holdsResources } from '../records/replicas.js';
import type { ClusterView } from './view.js';

export interface DrainSources {
  readonly view: Pick<ClusterView, 'replicasOn' | 'unplaced' | 'workload' | 'control'>;
  readonly nodes: { isAlive(nodeId: string): boolean };
}

/** Most workloads that the status lists, so that it stays short on a node with many replicas. */
const MAX_WAITING_LINES = 20;

/** The drain status of a node; undefined when the node is not draining and no drain failed. */
export function toDrainStatus(
  sources: DrainSources,
  { id, draining, drain }: NodeRecord,
): DrainStatus | undefined {
  if (drain === undefined && !draining) return undefined;
  const remaining = listReplicasHeldBy(sources.view, id);
  return create(DrainStatusSchema, {
    phase: drain?.phase ?? DrainPhase.DRAINING,
    ...definedFields({ startedAt: drain?.startedAt, deadline: drain?.deadline }),
    force: drain?.force ?? false,
    total: drain?.total ?? remaining.length,
    remaining: remaining.length,
    waiting: [...listWaiting(sources, id, remaining)],
  });
}

/** The replicas that still hold resources on a node. */
export function listReplicasHeldBy(
  view: Pick<ClusterView, 'replicasOn'>,
  nodeId: string,
): readonly ReplicaRecord[] {
  return [...view.replicasOn(nodeId)].map(({ value }) => value).filter(holdsResources);
}

/**
 * One line for each workload with replicas on the node, sorted by name: how many replicas, and what
 * they are waiting for.
 */
function listWaiting(
  sources: DrainSources,
  nodeId: string,
  remaining: readonly ReplicaRecord[],
): readonly string[] {
  if (remaining.length === 0) return [];
  const byWorkload = groupByUid(remaining);
  const unplaced = groupByUid([...sources.view.unplaced()].map(({ value }) => value));
  const lines = [...byWorkload]
    .map(([uid, replicas]) => {
      const reason = explainRemaining(sources, {
        nodeId,
        uid,
        remaining: replicas,
        unplaced: unplaced.get(uid) ?? [],
      });
      return `${formatWorkloadName(sources, uid)}: ${formatReplicaCount(replicas.length)}: ${reason}`;
    })
    .sort();
  const more = lines.length - MAX_WAITING_LINES;
  return more <= 0
    ? lines
    : [
        ...lines.slice(0, MAX_WAITING_LINES),
        `and ${more} more ${more === 1 ? 'workload' : 'workloads'}`,
      ];
}

function groupByUid(
  replicas: readonly ReplicaRecord[],
): ReadonlyMap<string, readonly ReplicaRecord[]> {
  const groups = new Map<string, ReplicaRecord[]>();
  for (const replica of replicas) {
    const group = groups.get(replica.uid);
    if (group === undefined) groups.set(replica.uid, [replica]);
    else group.push(replica);
  }
  return groups;
}

function formatWorkloadName({ view }: DrainSources, uid: string): string {
  const workload = view.workload(uid)?.value;
  return workload === undefined
    ? `deleted workload ${uid}`
    : `${workload.namespace}/${workload.name}`;
}

interface RemainingReplicas {
  readonly nodeId: string;
  readonly uid: string;
  /** The workload's replicas that are still on the node. */
  readonly remaining: readonly ReplicaRecord[];
  /** The workload's replicas that are waiting for a node. */
  readonly unplaced: readonly ReplicaRecord[];
}

/**
 * Returns one reason why replicas are still on the node, in this order: they are stopping, their
 * replacements have no node, the rollout waits, they are about to be replaced.
 */
function explainRemaining(
  { view, nodes }: DrainSources,
  { nodeId, uid, remaining, unplaced }: RemainingReplicas,
): string {
  if (!remaining.some(({ desiredRunning }) => desiredRunning)) {
    return nodes.isAlive(nodeId)
      ? 'stopping (grace period)'
      : 'stopping, and the node is not connected to confirm it';
  }
  const placementReason = unplaced.find(({ reason }) => reason !== '')?.reason;
  if (placementReason !== undefined) {
    return `${unplaced.length === 1 ? '1 replacement has' : `${unplaced.length} replacements have`} no node: ${placementReason}`;
  }
  const reason = view.control(uid)?.value.rolloutReason ?? '';
  return reason === '' ? 'about to be replaced' : reason;
}

const formatReplicaCount = (count: number): string =>
  count === 1 ? '1 replica' : `${count} replicas`;
