import { Rollout_Strategy as Strategy } from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import { toNodeId } from '@cloudless/base';
import { canonicalVersion, isLive, type ClusterView, type Stored } from '@cloudless/cluster-state';
import {
  describeFailure,
  describeReasons,
  type Cluster,
  type Placement,
  type PlacementReason,
  type PlacementRequest,
} from '@cloudless/scheduler';
import { stillWanted } from './workload-pass.js';

/** The decision for one replica: a node, or the reason why it has none. */
export interface Decided {
  readonly replica: Stored<ReplicaRecord>;
  readonly outcome:
    { readonly nodeId: string; readonly score: number } | { readonly reason: string };
}

/** The decision for a batch of replicas. */
export interface PlacementDecision {
  /** The replicas with a decision, in input order. */
  readonly decided: readonly Decided[];
  /** Whether all placements have to be committed before any other decision. */
  readonly asOne: boolean;
  /**
   * Why some replicas have no node, for the event; undefined when every considered replica has one.
   */
  readonly refusal?: string;
}

/**
 * Decides for replicas that may run on any node.
 * @param limit - Most replicas to place now. The rest is decided in the next call, on the state of
 *   that time.
 */
export function decideAny(
  cluster: Cluster,
  request: PlacementRequest,
  replicas: readonly Stored<ReplicaRecord>[],
  most: number,
): PlacementDecision {
  const placements = cluster.place(request, Math.min(replicas.length, most));
  const refused = placements.find((placement) => !placement.placed);
  // A refusal of one replica holds for all after it, also for those beyond this commit.
  const answers =
    refused === undefined ? placements : replicas.map((_, index) => placements[index] ?? refused);
  const decided = together(replicas, answers, (why) => `no node fits: ${why}`);
  if (refused === undefined) return { decided, asOne: false };
  const placed = placements.filter((placement) => placement.placed).length;
  return {
    decided,
    asOne: false,
    refusal: `no node fits ${countOf(replicas.length - placed)}: ${whyOf(refused)}`,
  };
}

/** Most nodes that an event names. */
const MAX_NAMED = 5;

/** Decides for replicas that may each run on one given node only (mode GLOBAL). */
export function decideBound(
  cluster: Cluster,
  request: PlacementRequest,
  replicas: readonly Stored<ReplicaRecord>[],
): PlacementDecision {
  const placements = cluster.placeOn(
    request,
    replicas.map(({ value }) => toNodeId(value.onlyNodeId)),
  );
  const decided = together(replicas, placements, whyNotOn);
  const refusals = decided.flatMap(({ outcome }) => ('reason' in outcome ? [outcome.reason] : []));
  if (refusals.length === 0) return { decided, asOne: false };
  const more = refusals.length > MAX_NAMED ? `; and ${refusals.length - MAX_NAMED} more` : '';
  const where = refusals.length === 1 ? 'on its node' : 'each on its node';
  const refusal = `${countOf(refusals.length)} cannot be placed ${where}: ${refusals.slice(0, MAX_NAMED).join('; ')}${more}`;
  return { decided, asOne: false, refusal };
}

/** The new set of a blue/green rollout: its size, and how many of its replicas have no node yet. */
export interface NewSet {
  readonly size: number;
  readonly missing: number;
  /** False while its first replicas are still being created. */
  readonly complete: boolean;
}

/** Places a whole set or nothing: a part would hold resources and never serve. */
export function decideWhole(
  cluster: Cluster,
  request: PlacementRequest,
  replicas: readonly Stored<ReplicaRecord>[],
  { size, missing, complete }: NewSet,
): PlacementDecision {
  if (!complete) return { decided: [], asOne: true };
  const placements = cluster.place(request, missing);
  const refused = placements.filter((placement) => !placement.placed);
  const [first] = refused;
  if (first === undefined)
    return { decided: together(replicas, placements, (why) => why), asOne: true };
  const reason =
    `the new set of ${countOf(size)} is placed as a whole, and ${refused.length} of them ` +
    `${refused.length === 1 ? 'finds' : 'find'} no node: ${whyOf(first)}`;
  return {
    decided: replicas.map((replica) => ({ replica, outcome: { reason } })),
    asOne: true,
    refusal: reason,
  };
}

/**
 * The new set that replicas of a version belong to: that of a blue/green rollout to a version other
 * than the serving one. Undefined for all other replicas, also for a first deployment, where some
 * replicas are better than none.
 */
export function newSetOf(
  view: ClusterView,
  workload: WorkloadRecord,
  version: number,
): NewSet | undefined {
  const { uid } = workload;
  const control = view.control(uid)?.value;
  const serving = control?.activeVersion ?? 0;
  const canonical = (number: number): number => canonicalVersion(view, uid, number);
  if (control?.rollout?.strategy !== Strategy.BLUE_GREEN || serving === 0) return undefined;
  if (canonical(serving) === canonical(version)) return undefined;
  const replicas = [...view.replicasOf(uid)].map(({ value }) => value);
  const size = stillWanted(view, workload, replicas, workload.spec?.replicas ?? 1);
  const ofSet = replicas.filter(
    (replica) =>
      replica.desiredRunning &&
      !replica.lost &&
      isLive(replica) &&
      canonical(replica.version) === canonical(version),
  );
  const waiting = ofSet.filter(({ nodeId }) => nodeId === '').length;
  const placed = ofSet.length - waiting;
  return {
    size,
    missing: Math.max(waiting, size - placed),
    complete: placed > 0 || waiting >= size,
  };
}

function together(
  replicas: readonly Stored<ReplicaRecord>[],
  placements: readonly Placement[],
  toReason: (why: string, replica: ReplicaRecord, reasons: readonly PlacementReason[]) => string,
): readonly Decided[] {
  return replicas.flatMap((replica, index): Decided[] => {
    const placement = placements[index];
    if (placement === undefined) return [];
    if (!placement.placed)
      return [
        {
          replica,
          outcome: { reason: toReason(whyOf(placement), replica.value, placement.reasons) },
        },
      ];
    return [{ replica, outcome: { nodeId: placement.nodeId, score: placement.score } }];
  });
}

function whyOf(placement: Placement): string {
  return placement.placed ? '' : describeReasons(placement.reasons);
}

function whyNotOn(
  _why: string,
  { onlyNodeId }: ReplicaRecord,
  [reason]: readonly PlacementReason[],
): string {
  return reason === undefined
    ? `node ${onlyNodeId} is not in the cluster`
    : `node ${onlyNodeId} does not fit: ${describeFailure(reason)}`;
}

function countOf(replicas: number): string {
  return `${replicas} ${replicas === 1 ? 'replica' : 'replicas'}`;
}
