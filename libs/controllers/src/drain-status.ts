import { create } from '@bufbuild/protobuf';
import {
  DrainStatusSchema,
  DrainStatus_Phase as DrainPhase,
  type DrainStatus,
} from '@cloudless/api';
import type { NodeRecord, ReplicaRecord } from '@cloudless/api/store';
import { holdsResources, type ClusterView } from '@cloudless/cluster-state';
import type { NodeDirectory } from './node-directory.js';

export interface DrainSources {
  readonly view: Pick<ClusterView, 'replicasOn' | 'unplaced' | 'workload' | 'control'>;
  readonly nodes: Pick<NodeDirectory, 'isAlive'>;
}

/** Most workloads that the status lists. */
const MAX_WAITING = 20;

/** The drain status of a node; undefined without a current or failed drain. */
export function drainStatusOf(
  sources: DrainSources,
  { id, draining, drain }: NodeRecord,
): DrainStatus | undefined {
  if (drain === undefined && !draining) return undefined;
  const left = replicasHeldBy(sources.view, id);
  return create(DrainStatusSchema, {
    phase: drain?.phase ?? DrainPhase.DRAINING,
    ...(drain?.startedAt === undefined ? {} : { startedAt: drain.startedAt }),
    ...(drain?.deadline === undefined ? {} : { deadline: drain.deadline }),
    force: drain?.force ?? false,
    total: drain?.total ?? left.length,
    remaining: left.length,
    waiting: [...waitingOn(sources, id, left)],
  });
}

/** The replicas that still hold resources on a node. */
export function replicasHeldBy(
  view: Pick<ClusterView, 'replicasOn'>,
  nodeId: string,
): readonly ReplicaRecord[] {
  return [...view.replicasOn(nodeId)].map(({ value }) => value).filter(holdsResources);
}

/**
 * One line for each workload with replicas on the node, sorted by name: how many replicas, and what
 * they are waiting for.
 */
function waitingOn(
  sources: DrainSources,
  nodeId: string,
  left: readonly ReplicaRecord[],
): readonly string[] {
  if (left.length === 0) return [];
  const byWorkload = byUid(left);
  const homeless = byUid([...sources.view.unplaced()].map(({ value }) => value));
  const lines = [...byWorkload]
    .map(([uid, replicas]) => {
      const why = whyLeft(sources, {
        nodeId,
        uid,
        left: replicas,
        homeless: homeless.get(uid) ?? [],
      });
      return `${nameOf(sources, uid)}: ${counted(replicas.length)}: ${why}`;
    })
    .sort();
  const more = lines.length - MAX_WAITING;
  return more <= 0
    ? lines
    : [...lines.slice(0, MAX_WAITING), `and ${more} more ${more === 1 ? 'workload' : 'workloads'}`];
}

function byUid(replicas: readonly ReplicaRecord[]): ReadonlyMap<string, readonly ReplicaRecord[]> {
  const groups = new Map<string, ReplicaRecord[]>();
  for (const replica of replicas) {
    const group = groups.get(replica.uid);
    if (group === undefined) groups.set(replica.uid, [replica]);
    else group.push(replica);
  }
  return groups;
}

function nameOf({ view }: DrainSources, uid: string): string {
  const workload = view.workload(uid)?.value;
  return workload === undefined
    ? `deleted workload ${uid}`
    : `${workload.namespace}/${workload.name}`;
}

interface Left {
  readonly nodeId: string;
  readonly uid: string;
  /** The workload's replicas that are still on the node. */
  readonly left: readonly ReplicaRecord[];
  /** The workload's replicas that are waiting for a node. */
  readonly homeless: readonly ReplicaRecord[];
}

/** Why replicas are still on the node; the most severe cause comes first. */
function whyLeft({ view, nodes }: DrainSources, { nodeId, uid, left, homeless }: Left): string {
  if (!left.some(({ desiredRunning }) => desiredRunning)) {
    return nodes.isAlive(nodeId)
      ? 'stopping (grace period)'
      : 'stopping, and the node is not connected to confirm it';
  }
  const why = homeless.find(({ reason }) => reason !== '')?.reason;
  if (why !== undefined) {
    return `${homeless.length === 1 ? '1 replacement has' : `${homeless.length} replacements have`} no node: ${why}`;
  }
  const reason = view.control(uid)?.value.rolloutReason ?? '';
  return reason === '' ? 'about to be replaced' : reason;
}

const counted = (count: number): string => (count === 1 ? '1 replica' : `${count} replicas`);
