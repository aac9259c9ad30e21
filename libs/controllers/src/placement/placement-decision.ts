import { Rollout_Strategy as Strategy } from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import { toNodeId, type NodeId } from '@cloudless/base';
import {
  toCanonicalVersion,
  isLive,
  type ClusterView,
  type Stored,
} from '@cloudless/cluster-state';
import { formatReplicaCount } from '@cloudless/rollout';
import {
  describeReasons,
  type Cluster,
  type Placement,
  type PlacementReason,
  type PlacementRequest,
} from '@cloudless/scheduler';
import { isNominated, matchNominations, withoutNominations } from '../preemption/nominations.js';
import { countStillWanted } from '../replica/finished.js';
import { placeAway } from './place-away.js';

/** The decision for one replica: a node, or the reason why no node fits. */
export interface ReplicaDecision {
  readonly replica: Stored<ReplicaRecord>;
  readonly outcome:
    { readonly nodeId: string; readonly score: number } | { readonly reason: string };
}

/** The decision for a batch of replicas. */
export interface PlacementDecision {
  /** The replicas with a decision. */
  readonly decided: readonly ReplicaDecision[];
  /** True when all placements have to be committed before any other decision is made. */
  readonly isAtomic: boolean;
  /**
   * Reason why some replicas have no node, for the event; undefined when every replica in `decided`
   * has a node.
   */
  readonly refusal?: string;
}

/**
 * Decides for replicas that may run on any node.
 * @param limit - Most replicas to place now. The caller decides about the rest in its next call, on
 *   the state of that time.
 * @param leftNodes - Nodes to choose only for replicas that no other node fits. Default: none.
 * @returns As soon as no node fits one replica, a decision for all replicas, also beyond `limit`.
 */
export function decideAny(
  cluster: Cluster,
  request: PlacementRequest,
  replicas: readonly Stored<ReplicaRecord>[],
  limit: number,
  leftNodes: readonly NodeId[] = [],
): PlacementDecision {
  const placements = withoutNominations(cluster, request, recordsOf(replicas), () =>
    placeAway(cluster, request, Math.min(replicas.length, limit), leftNodes),
  );
  const refused = placements.find((placement) => !placement.placed);
  // All replicas have the same requirements: when no node fits one, none fits the others.
  const outcomes =
    refused === undefined ? placements : replicas.map((_, index) => placements[index] ?? refused);
  const decided = pairWithPlacements(
    matchNominations(replicas, outcomes),
    outcomes,
    (why) => `no node fits: ${why}`,
  );
  if (refused === undefined) return { decided, isAtomic: false };
  const placed = placements.filter((placement) => placement.placed).length;
  return {
    decided,
    isAtomic: false,
    refusal: `no node fits ${formatReplicaCount(replicas.length - placed)}: ${describeRefusal(refused)}`,
  };
}

/** The waiting replicas of one batch. The replicas of each list are in ascending sequence. */
export interface WaitingBatch {
  readonly size: number;
  listFirst(limit: number): readonly Stored<ReplicaRecord>[];
  listNominated(): readonly Stored<ReplicaRecord>[];
  /** Only replicas without a nomination. */
  listWithOtherReason(reason: string, limit: number): readonly Stored<ReplicaRecord>[];
}

/**
 * Decides as {@link decideAny} for all replicas of a batch, and reads only those that the decision
 * changes: a refusal concerns every replica, and most records have the reason already.
 * @param limit - Most replicas to place now, and most replicas to refuse.
 * @param leftNodes - As for {@link decideAny}.
 * @returns `isComplete`: false when a further decision has to follow about the rest of the batch.
 */
export function decideWaiting(
  cluster: Cluster,
  request: PlacementRequest,
  waiting: WaitingBatch,
  limit: number,
  leftNodes: readonly NodeId[] = [],
): { readonly decision: PlacementDecision; readonly isComplete: boolean } {
  const count = Math.min(waiting.size, limit);
  const nominated = waiting.listNominated();
  // Most batches have no nomination: then only the replicas that are placed have to be read.
  const hasNominations = nominated.length > 0;
  let replicas = hasNominations ? waiting.listFirst(limit) : [];
  const place = (): readonly Placement[] =>
    withoutNominations(cluster, request, recordsOf(replicas), () =>
      placeAway(cluster, request, count, leftNodes),
    );
  let placements = place();
  let refused = placements.find((placement) => !placement.placed);
  if (hasNominations && refused !== undefined) {
    // What later replicas hold by their nominations may serve the first replicas too.
    const first = waiting.listFirst(limit + nominated.length);
    replicas = [...new Set([...first, ...nominated])].sort(compareSequence);
    placements = place();
    refused = placements.find((placement) => !placement.placed);
  }
  const placed = placements.filter((placement) => placement.placed);
  const outcomes = hasNominations
    ? replicas.map((_, index) => placements[index] ?? refused).filter((item) => item !== undefined)
    : placed;
  const matched = matchNominations(
    hasNominations ? replicas : waiting.listFirst(placed.length),
    outcomes,
  );
  const decided = pairWithPlacements(matched.slice(0, placed.length), placed, (why) => why);
  if (refused === undefined)
    return {
      decision: { decided, isAtomic: false },
      isComplete: placed.length >= waiting.size,
    };
  const why = describeRefusal(refused);
  const reason = `no node fits: ${why}`;
  const placedIds = new Set(decided.map(({ replica }) => replica.value.id));
  const others = waiting
    .listWithOtherReason(reason, placed.length + limit + 1)
    .filter(({ value }) => !placedIds.has(value.id));
  const outcome = { reason };
  return {
    decision: {
      decided: [...decided, ...others.slice(0, limit).map((replica) => ({ replica, outcome }))],
      isAtomic: false,
      refusal: `no node fits ${formatReplicaCount(waiting.size - placed.length)}: ${why}`,
    },
    isComplete: others.length <= limit,
  };
}

/** Orders replicas of one workload by their sequence numbers. */
export const compareSequence = (a: Stored<ReplicaRecord>, b: Stored<ReplicaRecord>): number =>
  Number(a.value.sequence - b.value.sequence);

/** Most nodes that an event names. */
const MAX_NAMED = 5;

/** Decides for replicas that may each run on one given node only (mode GLOBAL). */
export function decideBound(
  cluster: Cluster,
  request: PlacementRequest,
  replicas: readonly Stored<ReplicaRecord>[],
): PlacementDecision {
  const placements = withoutNominations(cluster, request, recordsOf(replicas), () =>
    cluster.placeOn(
      request,
      replicas.map(({ value }) => toNodeId(value.onlyNodeId)),
    ),
  );
  const decided = pairWithPlacements(replicas, placements, describeBoundRefusal);
  const refusals = decided.flatMap(({ outcome }) => ('reason' in outcome ? [outcome.reason] : []));
  if (refusals.length === 0) return { decided, isAtomic: false };
  const more = refusals.length > MAX_NAMED ? `; and ${refusals.length - MAX_NAMED} more` : '';
  const where = refusals.length === 1 ? 'on its node' : 'each on its node';
  const refusal = `${formatReplicaCount(refusals.length)} cannot be placed ${where}: ${refusals.slice(0, MAX_NAMED).join('; ')}${more}`;
  return { decided, isAtomic: false, refusal };
}

/** The new set of a blue/green rollout. */
export interface NewSet {
  /** Wanted number of replicas. */
  readonly size: number;
  /** Number of replicas of the set that have no node yet, or are still to be created. */
  readonly missing: number;
  /** False while the first replicas of the set are still being created. */
  readonly complete: boolean;
}

/**
 * Decides for the replicas of a new set: all get a node, or none, as a part of a set would hold
 * resources and never serve. Decides nothing for a set that is not complete.
 */
export function decideSet(
  cluster: Cluster,
  request: PlacementRequest,
  replicas: readonly Stored<ReplicaRecord>[],
  { size, missing, complete }: NewSet,
): PlacementDecision {
  if (!complete) return { decided: [], isAtomic: true };
  const placements = cluster.place(request, missing);
  const refused = placements.filter((placement) => !placement.placed);
  const [first] = refused;
  if (first === undefined)
    return { decided: pairWithPlacements(replicas, placements, (why) => why), isAtomic: true };
  const reason =
    `the new set of ${formatReplicaCount(size)} is placed as a whole, and ${refused.length} of them ` +
    `${refused.length === 1 ? 'finds' : 'find'} no node: ${describeRefusal(first)}`;
  return {
    decided: replicas.map((replica) => ({ replica, outcome: { reason } })),
    isAtomic: true,
    refusal: reason,
  };
}

/**
 * Returns the new set of a blue/green rollout that the replicas of `version` belong to. Undefined
 * for the serving version, for other strategies, and for a first deployment, where some replicas
 * are better than none.
 */
export function findNewSet(
  view: ClusterView,
  workload: WorkloadRecord,
  version: number,
): NewSet | undefined {
  const { uid } = workload;
  const control = view.control(uid)?.value;
  const activeVersion = control?.activeVersion ?? 0;
  const toCanonical = (number: number): number => toCanonicalVersion(view, uid, number);
  if (control?.rollout?.strategy !== Strategy.BLUE_GREEN || activeVersion === 0) return undefined;
  if (toCanonical(activeVersion) === toCanonical(version)) return undefined;
  const replicas = [...view.replicasOf(uid)].map(({ value }) => value);
  const size = countStillWanted(view, workload, replicas, workload.spec?.replicas ?? 1);
  const members = replicas.filter(
    (replica) =>
      replica.desiredRunning &&
      !replica.lost &&
      isLive(replica) &&
      toCanonical(replica.version) === toCanonical(version),
  );
  const waiting = members.filter(({ nodeId }) => nodeId === '').length;
  const placed = members.length - waiting;
  return {
    size,
    missing: Math.max(waiting, size - placed),
    complete: placed > 0 || waiting >= size,
  };
}

function recordsOf(replicas: readonly Stored<ReplicaRecord>[]): readonly ReplicaRecord[] {
  return replicas.map(({ value }) => value);
}

function pairWithPlacements(
  replicas: readonly Stored<ReplicaRecord>[],
  placements: readonly Placement[],
  toReason: (why: string, replica: ReplicaRecord, reasons: readonly PlacementReason[]) => string,
): readonly ReplicaDecision[] {
  return replicas.flatMap((replica, index): ReplicaDecision[] => {
    const placement = placements[index];
    if (placement === undefined) return [];
    // A nominated replica keeps the reason that names its node.
    if (!placement.placed && isNominated(replica.value))
      return [{ replica, outcome: { reason: replica.value.reason } }];
    if (!placement.placed)
      return [
        {
          replica,
          outcome: {
            reason: toReason(describeRefusal(placement), replica.value, placement.reasons),
          },
        },
      ];
    return [{ replica, outcome: { nodeId: placement.nodeId, score: placement.score } }];
  });
}

function describeRefusal(placement: Placement): string {
  return placement.placed ? '' : describeReasons(placement.reasons);
}

function describeBoundRefusal(
  _why: string,
  { onlyNodeId }: ReplicaRecord,
  reasons: readonly PlacementReason[],
): string {
  return reasons.length === 0
    ? `node ${onlyNodeId} is not in the cluster`
    : `node ${onlyNodeId} does not fit: ${reasons.map(({ text }) => text).join('; ')}`;
}
