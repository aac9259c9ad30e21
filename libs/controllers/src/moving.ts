import { timestampMs } from '@bufbuild/protobuf/wkt';
import { Taint_Effect as Effect, type Toleration } from '@cloudless/api';
import type { DrainRecord, NodeRecord, ReplicaRecord } from '@cloudless/api/store';
import type { ClusterView } from '@cloudless/cluster-state';
import { isTolerated } from '@cloudless/scheduler';
import { effectiveNode, taintKey } from './effective-node.js';
import { isUsable, msOf, toTaint, toToleration } from './scheduler-input.js';

/** Whether a replica has to leave its node. */
export interface Moving {
  /**
   * Its node is being drained, or carries a NO_EXECUTE taint that it does not tolerate, or no
   * longer.
   */
  readonly draining: boolean;
  /** It goes whatever the floor: the drain is forced, and has no deadline or is past it. */
  readonly forced: boolean;
  /** Milliseconds until time alone changes the answer; absent: it never does. */
  readonly nextMs?: number;
}

const STAYS: Moving = { draining: false, forced: false };

/** @param nowMs - Wall time: deadlines and taints outlive a coordinator. */
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
 * Milliseconds until the deadline of a drain, 0 when it has passed; undefined: it has none. A clock
 * that went back never makes it longer than it was when the drain began.
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
 * How long a replica may stay under the NO_EXECUTE taints of its node: 0 when it has to go,
 * infinite without an end.
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
