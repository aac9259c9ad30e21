import type { RolloutStep } from './decision.js';
import type { RolloutLimits } from './limits.js';
import type { RolloutReplica } from './observed.js';

/** A replica that is wanted and not there. */
export interface Missing {
  readonly version: number;
  readonly nodeId?: string;
}

/** Which of the replicas that could stay do not, and which others there should be. */
export interface Choice {
  /** More than are wanted. */
  readonly surplus: readonly RolloutReplica[];
  /** Those that others shall take the place of, the first to go first. */
  readonly outdated: readonly RolloutReplica[];
  /** The first to be made first. */
  readonly missing: readonly Missing[];
}

/**
 * Makes a {@link Choice}.
 * @param candidates - Replicas that run and may go on doing so where they are.
 * @param drainingReady - How many ready ones wait for a place elsewhere.
 */
export type Choose = (candidates: readonly RolloutReplica[], drainingReady: number) => Choice;

/** A world sorted into who stays and who goes. */
export interface Tally {
  /** Replicas that hold resources: all but those on lost nodes. */
  readonly live: number;
  /** Freshly ready and not on the way out: what the floor is about. */
  readonly ready: number;
  /** Neither ready nor unproven, and not on the way out. */
  readonly unready: number;
  readonly unproven: number;
  /** Why no node takes the oldest of those that have none; undefined when all have one. */
  readonly unplaced: string | undefined;
  /** Stops that are committed but not confirmed. */
  readonly leaving: number;
  /** Those of `leaving` that were ready and may still serve. */
  readonly leavingReady: number;
  /** Live replicas on draining nodes, leaving or not; each allows one more live replica. */
  readonly draining: number;
  readonly missing: readonly Missing[];
  /** May always go. */
  readonly unreadyVictims: readonly RolloutReplica[];
  /** May go while the ready ones alone hold the floor. */
  readonly unprovenVictims: readonly RolloutReplica[];
  /** Go as the floor allows: surplus, then draining, then outdated ones. */
  readonly readyVictims: readonly RolloutReplica[];
  /** How many of `readyVictims` are surplus. */
  readonly surplusReady: number;
  /** How many of `readyVictims` are on draining nodes. */
  readonly drainingReady: number;
}

/** Sorts the replicas of a world: one pass, and ordering only among those that may go. */
export function tallyOf(replicas: readonly RolloutReplica[], choose: Choose): Tally {
  const counts = {
    live: 0,
    ready: 0,
    unready: 0,
    unproven: 0,
    leaving: 0,
    leavingReady: 0,
    draining: 0,
  };
  const candidates: RolloutReplica[] = [];
  const draining: RolloutReplica[] = [];
  let homeless: RolloutReplica | undefined;
  for (const replica of replicas) {
    if (replica.lost) continue;
    counts.live += 1;
    if (replica.draining) counts.draining += 1;
    if (replica.desired === 'stopped') {
      counts.leaving += 1;
      if (replica.ready) counts.leavingReady += 1;
      continue;
    }
    if (replica.ready) counts.ready += 1;
    else if (isUnproven(replica)) counts.unproven += 1;
    else counts.unready += 1;
    if (replica.unplaced !== undefined && (homeless === undefined || isOlder(replica, homeless)))
      homeless = replica;
    if (replica.draining) draining.push(replica);
    else candidates.push(replica);
  }
  const drainingReady = countOf(draining, isReady);
  const { surplus, outdated, missing } = choose(candidates, drainingReady);
  const victims = [...surplus, ...byDisruptionOrder(draining), ...outdated];
  return {
    ...counts,
    unplaced: homeless?.unplaced,
    missing,
    unreadyVictims: victims.filter(isUnready),
    unprovenVictims: victims.filter(isUnproven),
    readyVictims: victims.filter(isReady),
    surplusReady: countOf(surplus, isReady),
    drainingReady,
  };
}

/** The counts that a decision turns on. */
export interface Counts extends Pick<
  Tally,
  'live' | 'ready' | 'leaving' | 'leavingReady' | 'draining' | 'surplusReady' | 'drainingReady'
> {
  /** Replicas that are wanted and not there. */
  readonly missing: number;
  /** Replicas that others take the place of, ready, on nodes that stay. */
  readonly outdatedReady: number;
  /** Stops of this decision that need no permission. */
  readonly unreadyStops: number;
}

/** How many replicas to add, and how many of the ready victims to stop. */
export interface Moves {
  readonly creates: number;
  readonly readyStops: number;
}

/**
 * The arithmetic of a rolling update.
 *
 * Adding: up to the ceiling of `want + maxSurge`, and one more for each replica being drained.
 * Stopping ready replicas, in two shares:
 * - *free*: what is ready beyond `want` and is there only because of a scale-down or a drain; no
 *   batch, as availability does not suffer;
 * - *batch*: at most `batch` at once, those still leaving included, and only while more than
 *   `minAvailable` and no fewer than `want − batch` are ready. The second bound makes a batch wait
 *   until the one before it has been replaced by ready replicas.
 */
export function movesOf(limits: RolloutLimits, counts: Counts): Moves {
  const { want, minAvailable, maxSurge, batch } = limits;
  const ceiling = want + maxSurge + counts.draining;
  const creates = Math.max(0, Math.min(counts.missing, ceiling - counts.live));
  const staying = counts.live - counts.leaving;
  const going = counts.unreadyStops + counts.surplusReady + counts.drainingReady;
  const overCeiling = staying - going - (want === 0 ? 0 : want + maxSurge);
  const eligible =
    counts.surplusReady +
    counts.drainingReady +
    Math.min(counts.outdatedReady, Math.max(0, overCeiling));
  const free = Math.min(Math.max(0, counts.ready - want), eligible);
  const floor = Math.max(minAvailable, want - batch);
  const victims = counts.surplusReady + counts.drainingReady + counts.outdatedReady - free;
  const batched = Math.max(
    0,
    Math.min(batch - counts.leavingReady, counts.ready - free - floor, victims),
  );
  return { creates, readyStops: free + batched };
}

/** What a decision adds and stops. */
export interface Acts {
  readonly creates: readonly Missing[];
  readonly stops: readonly RolloutReplica[];
}

/** The moves that the limits allow now. */
export function actsOf(limits: RolloutLimits, tally: Tally): Acts {
  const { unreadyVictims, readyVictims, missing } = tally;
  const unprovenVictims = tally.ready >= limits.minAvailable ? tally.unprovenVictims : [];
  const { creates, readyStops } = movesOf(limits, {
    ...tally,
    missing: missing.length,
    outdatedReady: readyVictims.length - tally.surplusReady - tally.drainingReady,
    unreadyStops: unreadyVictims.length + unprovenVictims.length,
  });
  return {
    creates: missing.slice(0, creates),
    stops: [...unreadyVictims, ...unprovenVictims, ...readyVictims.slice(0, readyStops)],
  };
}

/** Makes what is missing. */
export const toCreate = ({ version, nodeId }: Missing): RolloutStep =>
  nodeId === undefined
    ? { kind: 'createReplica', version }
    : { kind: 'createReplica', version, nodeId };

/** As the caller gets them. */
export function toSteps({ creates, stops }: Acts): readonly RolloutStep[] {
  return [
    ...creates.map(toCreate),
    ...stops.map((replica) => ({ kind: 'stopReplica', replicaId: replica.id }) as const),
  ];
}

const isOlder = (a: RolloutReplica, b: RolloutReplica): boolean =>
  a.createdSequence < b.createdSequence || (a.createdSequence === b.createdSequence && a.id < b.id);

export const isReady = (replica: RolloutReplica): boolean => replica.ready;
export const isUnproven = (replica: RolloutReplica): boolean =>
  !replica.ready && replica.unproven === true;
export const isUnready = (replica: RolloutReplica): boolean =>
  !replica.ready && replica.unproven !== true;
/** Holds resources and has not been asked to stop. */
export const isStaying = (replica: RolloutReplica): boolean =>
  !replica.lost && replica.desired === 'running';

/** How many are so. */
export function countOf<T>(all: readonly T[], isSo: (one: T) => boolean): number {
  let count = 0;
  for (const one of all) if (isSo(one)) count += 1;
  return count;
}

/** `count` times the same; none when negative. */
export const times = (count: number, missing: Missing): readonly Missing[] =>
  new Array<Missing>(Math.max(0, count)).fill(missing);

/** Those of a group that are more than `count`, cheapest to lose first. */
export function excessOf(
  group: readonly RolloutReplica[],
  count: number,
): readonly RolloutReplica[] {
  return group.length > count ? byDisruptionOrder(group).slice(0, group.length - count) : [];
}

/** Cheapest to lose first: unready, then unproven, then the newest. */
export function byDisruptionOrder(replicas: readonly RolloutReplica[]): readonly RolloutReplica[] {
  return [...replicas].sort(
    (a, b) =>
      worth(a) - worth(b) || b.createdSequence - a.createdSequence || (a.id < b.id ? 1 : -1),
  );
}

function worth(replica: RolloutReplica): number {
  if (replica.ready) return 2;
  return replica.unproven === true ? 1 : 0;
}
