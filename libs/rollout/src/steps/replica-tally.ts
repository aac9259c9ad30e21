import type { RolloutStep } from './decision.js';
import { stopsFirst, type RolloutLimits } from './limits.js';
import type { RolloutObserved, RolloutReplica } from './observed.js';

/** A replica to create. */
export interface MissingReplica {
  readonly version: number;
  readonly nodeId?: string;
}

/** The candidates to stop, and the replicas to create. */
export interface ReplicaChoice {
  /** Replicas above the wanted count. */
  readonly surplus: readonly RolloutReplica[];
  /** Replicas to replace, the first to stop first. */
  readonly outdated: readonly RolloutReplica[];
  /** In order of creation. */
  readonly missing: readonly MissingReplica[];
}

/**
 * Chooses which replicas stay.
 * @param candidates - Running replicas that may stay on their nodes.
 * @param drainingAvailable - Number of available replicas that are being replaced on another node.
 */
export type ChooseReplicas = (
  candidates: readonly RolloutReplica[],
  drainingAvailable: number,
) => ReplicaChoice;

/** The replicas of a workload, counted and sorted into groups. */
export interface ReplicaTally {
  /** Number of replicas that hold resources: all replicas but those on lost nodes. */
  readonly live: number;
  /** Number of available replicas that are not stopping: the number that `minAvailable` limits. */
  readonly available: number;
  /** Number of replicas that are neither available nor `notYetAvailable`, and not stopping. */
  readonly unready: number;
  /** Number of replicas that are `notYetAvailable` and not stopping. */
  readonly notYetAvailable: number;
  /** Number of these on silent nodes. The others are ready for less than min_ready_duration. */
  readonly onSilentNodes: number;
  /** Reason why no node fits the oldest unplaced replica; undefined when none is unplaced. */
  readonly unplaced: string | undefined;
  /** Number of stops that are committed but not confirmed. */
  readonly leaving: number;
  /** Number of stopping replicas that were available and may still serve. */
  readonly leavingAvailable: number;
  /**
   * Number of live replicas, stopping or not, that each allow one more live replica, because they
   * have to leave their nodes.
   */
  readonly extraLive: number;
  readonly missing: readonly MissingReplica[];
  /** Replicas that may always stop. */
  readonly unreadyVictims: readonly RolloutReplica[];
  /** Replicas that may stop while the available replicas alone satisfy `minAvailable`. */
  readonly notYetAvailableVictims: readonly RolloutReplica[];
  /**
   * Available replicas that may stop as `minAvailable` allows: surplus, then draining, then
   * outdated replicas.
   */
  readonly availableVictims: readonly RolloutReplica[];
  /** Number of `availableVictims` that are surplus. */
  readonly surplusAvailable: number;
  /** Number of `availableVictims` on draining nodes. */
  readonly drainingAvailable: number;
}

/**
 * Counts and groups replicas in one pass; only replicas that may stop are sorted.
 * @param allowsExtra - Returns true for a replica that allows one more live replica. Default: every
 *   draining replica does.
 * @param others - Numbers of further replicas: those that wait for a node, and available ones. Default:
 *   none.
 */
export function tallyReplicas(
  replicas: readonly RolloutReplica[],
  choose: ChooseReplicas,
  allowsExtra: ReplicaTest = isDraining,
  others: Pick<RolloutObserved, 'waiting' | 'alsoAvailable'> = {},
): ReplicaTally {
  const { waiting = 0, alsoAvailable = 0 } = others;
  const counts = {
    live: waiting + alsoAvailable,
    available: alsoAvailable,
    unready: waiting,
    notYetAvailable: 0,
    onSilentNodes: 0,
    leaving: 0,
    leavingAvailable: 0,
    extraLive: 0,
  };
  const candidates: RolloutReplica[] = [];
  const draining: RolloutReplica[] = [];
  let oldestUnplaced: RolloutReplica | undefined;
  for (const replica of replicas) {
    if (replica.lost) continue;
    counts.live += 1;
    if (allowsExtra(replica)) counts.extraLive += 1;
    if (replica.desired === 'stopped') {
      counts.leaving += 1;
      if (replica.available) counts.leavingAvailable += 1;
      continue;
    }
    if (replica.available) counts.available += 1;
    else if (isNotYetAvailable(replica)) {
      counts.notYetAvailable += 1;
      if (replica.onSilentNode === true) counts.onSilentNodes += 1;
    } else counts.unready += 1;
    if (
      replica.unplaced !== undefined &&
      (oldestUnplaced === undefined || isOlder(replica, oldestUnplaced))
    )
      oldestUnplaced = replica;
    if (replica.draining) draining.push(replica);
    else candidates.push(replica);
  }
  const drainingAvailable = countWhere(draining, isAvailable);
  const { surplus, outdated, missing } = choose(candidates, drainingAvailable);
  const victims = [...surplus, ...sortByDisruptionOrder(draining), ...outdated];
  return {
    ...counts,
    unplaced: oldestUnplaced?.unplaced,
    missing,
    unreadyVictims: victims.filter(isUnready),
    notYetAvailableVictims: victims.filter(isNotYetAvailable),
    availableVictims: victims.filter(isAvailable),
    surplusAvailable: countWhere(surplus, isAvailable),
    drainingAvailable,
  };
}

/** The counts that decide the next steps. */
export interface MoveInput {
  readonly live: number;
  readonly available: number;
  readonly leaving: number;
  readonly leavingAvailable: number;
  readonly extraLive: number;
  readonly surplusAvailable: number;
  readonly drainingAvailable: number;
  /** Number of replicas to create. */
  readonly missing: number;
  /** Number of available replicas to replace, on nodes that are not draining. */
  readonly outdatedAvailable: number;
  /** Number of stops of this decision whose replicas are not available. */
  readonly unreadyStops: number;
}

/** Numbers of replicas to create and of available replicas to stop. */
export interface MoveCounts {
  readonly creates: number;
  readonly availableStops: number;
}

/**
 * Computes the numbers of a rolling update.
 *
 * Creations: up to `want + maxSurge + extraLive` live replicas. Stops of available replicas, in two
 * shares:
 * - *free*: available replicas beyond `want` and `minAvailable` that exist because of a scale-down
 *   or a drain; without a batch limit, as availability does not suffer;
 * - *batch*: at most `batch` at once, unconfirmed stops included, while at least `minAvailable` and
 *   at least `want − batch` available replicas remain. The second limit makes a batch wait until
 *   available replicas have replaced the previous batch.
 */
export function computeMoves(limits: RolloutLimits, counts: MoveInput): MoveCounts {
  const { want, minAvailable, maxSurge, batch } = limits;
  const maxLive = want + maxSurge + counts.extraLive;
  const creates = Math.max(0, Math.min(counts.missing, maxLive - counts.live));
  const remaining = counts.live - counts.leaving;
  const leavingSoon = counts.unreadyStops + counts.surplusAvailable + counts.drainingAvailable;
  const overMaxLive = remaining - leavingSoon - (want === 0 ? 0 : want + maxSurge);
  const eligible =
    counts.surplusAvailable +
    counts.drainingAvailable +
    Math.min(counts.outdatedAvailable, Math.max(0, overMaxLive));
  const free = Math.min(Math.max(0, counts.available - Math.max(want, minAvailable)), eligible);
  const minRemaining = Math.max(minAvailable, want - batch);
  const victims =
    counts.surplusAvailable + counts.drainingAvailable + counts.outdatedAvailable - free;
  const batched = Math.max(
    0,
    Math.min(batch - counts.leavingAvailable, counts.available - free - minRemaining, victims),
  );
  return { creates, availableStops: free + batched };
}

/** The replicas that a decision creates and stops. */
export interface RolloutActions {
  readonly creates: readonly MissingReplica[];
  readonly stops: readonly RolloutReplica[];
}

/** Decides the creations and stops that the limits allow now. */
export function decideActions(limits: RolloutLimits, tally: ReplicaTally): RolloutActions {
  const { unreadyVictims, availableVictims, missing } = tally;
  const notYetAvailableVictims =
    tally.available >= limits.minAvailable ? tally.notYetAvailableVictims : [];
  const { creates, availableStops } = computeMoves(limits, {
    ...tally,
    missing: missing.length,
    outdatedAvailable: availableVictims.length - tally.surplusAvailable - tally.drainingAvailable,
    unreadyStops: unreadyVictims.length + notYetAvailableVictims.length,
  });
  return {
    creates: missing.slice(0, creates),
    stops: [
      ...unreadyVictims,
      ...notYetAvailableVictims,
      ...availableVictims.slice(0, availableStops),
    ],
  };
}

/** Returns the step that creates a missing replica. */
export const toCreateStep = ({ version, nodeId }: MissingReplica): RolloutStep =>
  nodeId === undefined
    ? { kind: 'createReplica', version }
    : { kind: 'createReplica', version, nodeId };

/** Returns the steps of a decision: creations, then stops. */
export function toSteps({ creates, stops }: RolloutActions): readonly RolloutStep[] {
  // Equal replicas share their step: a decision may create a million of them.
  const created = new Map<MissingReplica, RolloutStep>();
  return [
    ...creates.map((missing) => {
      const step = created.get(missing) ?? toCreateStep(missing);
      if (created.size === 0) created.set(missing, step);
      return step;
    }),
    ...stops.map((replica) => ({ kind: 'stopReplica', replicaId: replica.id }) as const),
  ];
}

/** A condition on a replica. */
export type ReplicaTest = (replica: RolloutReplica) => boolean;

/**
 * Returns the test of a rolling update for replicas that allow one more live replica. Each draining
 * replica does, so that its replacement may start beside it; with {@link stopsFirst} none does, as
 * the replacement starts after its end. In mode GLOBAL a replica that leaves a node is not replaced
 * on another node, so there only replicas on target nodes take the room of others.
 */
export function createExtraTest(observed: RolloutObserved): ReplicaTest {
  if (!stopsFirst(observed)) return isDraining;
  if (observed.globalTargets === undefined) return () => false;
  const targets = new Set(observed.globalTargets);
  return ({ draining, nodeId = '' }) => draining && !targets.has(nodeId);
}

const isDraining: ReplicaTest = ({ draining }) => draining;
const isOlder = (a: RolloutReplica, b: RolloutReplica): boolean =>
  a.createdSequence < b.createdSequence || (a.createdSequence === b.createdSequence && a.id < b.id);

/** Returns true for an available replica, also a stopping one. */
export const isAvailable = (replica: RolloutReplica): boolean => replica.available;
/** Returns true for a replica that is not available but may serve. */
export const isNotYetAvailable = (replica: RolloutReplica): boolean =>
  !replica.available && replica.notYetAvailable === true;
/** Returns true for a replica that is not available and does not serve. */
export const isUnready = (replica: RolloutReplica): boolean =>
  !replica.available && replica.notYetAvailable !== true;
/** Returns true for a replica that holds resources and is not stopping. */
export const isStaying = (replica: RolloutReplica): boolean =>
  !replica.lost && replica.desired === 'running';

/** Counts the items that meet a condition, without an intermediate list. */
export function countWhere<Item>(
  items: readonly Item[],
  meetsCondition: (item: Item) => boolean,
): number {
  let count = 0;
  for (const item of items) if (meetsCondition(item)) count += 1;
  return count;
}

/** Returns `count` equal replicas to create; none when `count` is negative. */
export const repeat = (count: number, missing: MissingReplica): readonly MissingReplica[] =>
  new Array<MissingReplica>(Math.max(0, count)).fill(missing);

/** Returns the replicas of a group beyond `count`, those that stop first in disruption order. */
export function findExcess(
  group: readonly RolloutReplica[],
  count: number,
): readonly RolloutReplica[] {
  return group.length > count ? sortByDisruptionOrder(group).slice(0, group.length - count) : [];
}

/** Sorts in disruption order: unready, then not yet available, then available; newest first. */
export function sortByDisruptionOrder(
  replicas: readonly RolloutReplica[],
): readonly RolloutReplica[] {
  return [...replicas].sort(
    (a, b) =>
      getDisruptionRank(a) - getDisruptionRank(b) ||
      b.createdSequence - a.createdSequence ||
      (a.id < b.id ? 1 : -1),
  );
}

function getDisruptionRank(replica: RolloutReplica): number {
  if (replica.available) return 2;
  return replica.notYetAvailable === true ? 1 : 0;
}
