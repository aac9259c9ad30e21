import { timestampMs } from '@bufbuild/protobuf/wkt';
import { Taint_Effect as Effect, type Toleration } from '@cloudless/api';
import type { DrainRecord, NodeRecord, ReplicaRecord } from '@cloudless/api/store';
import type { ClusterView } from '@cloudless/cluster-state';
import { isTolerated } from '@cloudless/scheduler';
import { effectiveNode, taintKey } from './effective-node.js';
import { isUsable, msOf, toTaint, toToleration } from './scheduler-input.js';

/** Tells whether and when a replica has to leave its node. */
export interface Moving {
  /**
   * True while the node is drained, or has a NO_EXECUTE taint that the replica does not tolerate or
   * no longer tolerates.
   */
  readonly draining: boolean;
  /**
   * True when the replica stops whatever `min_available` says: the drain is forced, and has no
   * deadline or has passed it.
   */
  readonly forced: boolean;
  /** Milliseconds until the answer changes by time alone; absent when it never does. */
  readonly nextMs?: number;
}

const STAYS: Moving = { draining: false, forced: false };

/**
 * The eviction of a replica from its node by a drain or a NO_EXECUTE taint.
 * @param nowMs - Wall-clock milliseconds: deadlines and taints outlive a coordinator.
 */
export function movingOf(
  view: Pick<ClusterView, 'node' | 'version'>,
  replica: Pick<ReplicaRecord, 'nodeId' | 'uid' | 'version'>,
  nowMs: number,
): Moving {
  const node = replica.nodeId === '' ? undefined : view.node(replica.nodeId)?.value;
  if (node === undefined) return STAYS;
  if (node.draining) return drainedAway(node.drain, nowMs);
  const staysMs = tolerationLeftMs(
    node,
    () => view.version(replica.uid, replica.version)?.template?.placement?.tolerations,
    nowMs,
  );
  if (staysMs <= 0) return { draining: true, forced: false };
  return Number.isFinite(staysMs) ? { ...STAYS, nextMs: staysMs } : STAYS;
}

/**
 * Milliseconds until the deadline of a drain, 0 when it has passed, undefined without a deadline.
 * Never more than the whole period of the drain, even when the clock was set back.
 */
export function drainLeftMs(
  { startedAt, deadline }: DrainRecord,
  nowMs: number,
): number | undefined {
  if (deadline === undefined) return undefined;
  const endMs = timestampMs(deadline);
  const wholeMs =
    startedAt === undefined ? Number.POSITIVE_INFINITY : endMs - timestampMs(startedAt);
  return Math.max(0, Math.min(wholeMs, endMs - nowMs));
}

function drainedAway(drain: DrainRecord | undefined, nowMs: number): Moving {
  if (drain?.force !== true) return { draining: true, forced: false };
  const leftMs = drainLeftMs(drain, nowMs) ?? 0;
  return leftMs <= 0
    ? { draining: true, forced: true }
    : { draining: true, forced: false, nextMs: leftMs };
}

/**
 * Milliseconds for which a replica may still stay under the NO_EXECUTE taints of its node: 0 when
 * it has to leave, `Infinity` without a limit.
 */
function tolerationLeftMs(
  node: NodeRecord,
  tolerations: () => readonly Toleration[] | undefined,
  nowMs: number,
): number {
  const taints = effectiveNode(node).taints.filter(
    (taint) => taint.effect === Effect.NO_EXECUTE && isUsable(taint),
  );
  if (taints.length === 0) return Number.POSITIVE_INFINITY;
  const known = tolerations() ?? [];
  return Math.min(
    ...taints.map((taint) => {
      const periodsMs = known
        .filter((toleration) => isTolerated(toTaint(taint), [toToleration(toleration)]))
        .map(({ tolerationPeriod }) =>
          tolerationPeriod === undefined ? Number.POSITIVE_INFINITY : msOf(tolerationPeriod),
        );
      const allowedMs = Math.max(0, ...periodsMs);
      const sinceMs = timeOf(node.taintsSince[taintKey(taint)] ?? node.createdAt);
      return Math.max(0, Math.min(allowedMs, sinceMs + allowedMs - nowMs));
    }),
  );
}

function timeOf(time: Parameters<typeof timestampMs>[0] | undefined): number {
  return time === undefined ? 0 : timestampMs(time);
}
