import { timestampMs } from '@bufbuild/protobuf/wkt';
import { Taint_Effect as Effect } from '@cloudless/api';
import type { ControlRecord, DrainRecord, NodeRecord, ReplicaRecord } from '@cloudless/api/store';
import { toEffectiveNode, toTaintKey, type ClusterView } from '@cloudless/cluster-state';
import { isTolerated } from '@cloudless/scheduler';
import { toMs } from '../common/duration.js';
import { isSupportedTaint, toTaint, toToleration } from '../placement/taints.js';

/** Eviction of a replica from its node, by a drain or by a NO_EXECUTE taint. */
export interface Eviction {
  /**
   * True when the replica has to leave: its node is draining, or has a NO_EXECUTE taint that the
   * replica does not tolerate or no longer tolerates.
   */
  readonly draining: boolean;
  /**
   * True when the replica stops whatever `min_available` says: the drain is forced, and has no
   * deadline or has passed it.
   */
  readonly forced: boolean;
  /** Milliseconds until the eviction changes by time alone; absent when it never does. */
  readonly changesInMs?: number;
}

const NOT_EVICTED: Eviction = { draining: false, forced: false };

/**
 * Decides about the eviction of a replica from its node. A replica without a node, or whose node
 * has no record, is not evicted.
 * @param nowMs - Wall-clock milliseconds: deadlines and taints outlive a coordinator.
 */
export function findEviction(
  view: Pick<ClusterView, 'node' | 'version'>,
  replica: Pick<ReplicaRecord, 'nodeId' | 'uid' | 'version'>,
  nowMs: number,
): Eviction {
  const node = replica.nodeId === '' ? undefined : view.node(replica.nodeId)?.value;
  if (node === undefined) return NOT_EVICTED;
  if (node.draining) return evictForDrain(node.drain, nowMs);
  // Most nodes have no taint.
  if (node.taints.length === 0 && (node.hello?.taints.length ?? 0) === 0) return NOT_EVICTED;
  const remainingMs = getRemainingTolerationMs(view, replica, node, nowMs);
  if (remainingMs <= 0) return { draining: true, forced: false };
  return Number.isFinite(remainingMs) ? { ...NOT_EVICTED, changesInMs: remainingMs } : NOT_EVICTED;
}

/** The replicas of a workload that a user has asked to move. */
export interface RequestedEviction {
  readonly replicaIds: ReadonlySet<string>;
  /** Nodes that these replicas were on at the time of the request. */
  readonly nodeIds: ReadonlySet<string>;
  /** Milliseconds until the replicas that have not left stay. */
  readonly endsInMs: number;
}

const NOTHING_REQUESTED: RequestedEviction = {
  replicaIds: new Set(),
  nodeIds: new Set(),
  endsInMs: Infinity,
};

/**
 * Returns the replicas that a user has asked to move.
 * @param nowMs - Wall-clock milliseconds: the request outlives a coordinator.
 */
export function findRequestedEviction(
  control: Pick<ControlRecord, 'eviction'> | undefined,
  nowMs: number,
): RequestedEviction {
  const eviction = control?.eviction;
  if (eviction?.until === undefined) return NOTHING_REQUESTED;
  const endsInMs = timestampMs(eviction.until) - nowMs;
  if (endsInMs <= 0) return NOTHING_REQUESTED;
  return {
    replicaIds: new Set(eviction.replicaIds),
    nodeIds: new Set(eviction.nodeIds),
    endsInMs,
  };
}

/**
 * Returns the milliseconds until the deadline of a drain: 0 after the deadline, undefined when the
 * drain has no deadline. Never more than the whole period of the drain, even when the clock was set
 * back.
 * @param nowMs - Wall-clock milliseconds.
 */
export function getRemainingDrainMs(
  { startedAt, deadline }: DrainRecord,
  nowMs: number,
): number | undefined {
  if (deadline === undefined) return undefined;
  const endMs = timestampMs(deadline);
  const periodMs =
    startedAt === undefined ? Number.POSITIVE_INFINITY : endMs - timestampMs(startedAt);
  return Math.max(0, Math.min(periodMs, endMs - nowMs));
}

function evictForDrain(drain: DrainRecord | undefined, nowMs: number): Eviction {
  if (drain?.force !== true) return { draining: true, forced: false };
  const remainingMs = getRemainingDrainMs(drain, nowMs) ?? 0;
  return remainingMs <= 0
    ? { draining: true, forced: true }
    : { draining: true, forced: false, changesInMs: remainingMs };
}

/**
 * Returns the milliseconds for which a replica may still stay under the NO_EXECUTE taints of its
 * node: 0 when the replica has to leave, `Infinity` without a limit.
 */
function getRemainingTolerationMs(
  view: Pick<ClusterView, 'version'>,
  replica: Pick<ReplicaRecord, 'uid' | 'version'>,
  node: NodeRecord,
  nowMs: number,
): number {
  const taints = toEffectiveNode(node).taints.filter(
    (taint) => taint.effect === Effect.NO_EXECUTE && isSupportedTaint(taint),
  );
  if (taints.length === 0) return Number.POSITIVE_INFINITY;
  const { template } = view.version(replica.uid, replica.version) ?? {};
  const tolerations = template?.placement?.tolerations ?? [];
  return Math.min(
    ...taints.map((taint) => {
      const periodsMs = tolerations
        .filter((toleration) => isTolerated(toTaint(taint), [toToleration(toleration)]))
        .map(({ tolerationPeriod }) =>
          tolerationPeriod === undefined ? Number.POSITIVE_INFINITY : toMs(tolerationPeriod),
        );
      const allowedMs = Math.max(0, ...periodsMs);
      const sinceMs = toTimestampMs(node.taintsSince[toTaintKey(taint)] ?? node.createdAt);
      return Math.max(0, Math.min(allowedMs, sinceMs + allowedMs - nowMs));
    }),
  );
}

function toTimestampMs(time: Parameters<typeof timestampMs>[0] | undefined): number {
  return time === undefined ? 0 : timestampMs(time);
}
