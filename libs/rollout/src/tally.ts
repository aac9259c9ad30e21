import type { RolloutStep } from './decision.js';
import type { RolloutLimits } from './limits.js';
import type { RolloutReplica } from './observed.js';

/** A replica to create. */
export interface Missing {
  readonly version: number;
  readonly nodeId?: string;
}

/** Which candidates stop, and which replicas to create. */
export interface Choice {
  /** Replicas above the wanted count. */
  readonly surplus: readonly RolloutReplica[];
  /** Replicas to replace, the first to stop first. */
  readonly outdated: readonly RolloutReplica[];
  /** In order of creation. */
  readonly missing: readonly Missing[];
}

/**
 * Chooses which replicas stay.
 * @param candidates - Running replicas that may stay on their nodes.
 * @param drainingAvailable - Number of available replicas that are being replaced on another node.
 */
export type Choose = (candidates: readonly RolloutReplica[], drainingReady: number) => Choice;

/** The replicas of a workload, counted and sorted into groups. */
export interface Tally {
  /** Number of replicas that hold resources: all but those on lost nodes. */
  readonly live: number;
  /** Number of available replicas that are not stopping; `minAvailable` is about these. */
  readonly ready: number;
  /** Number of replicas that are neither available nor `notYetAvailable`, and not stopping. */
  readonly unready: number;
  readonly unproven: number;
  /** Why no node fits the oldest replica without a node; undefined when every replica has one. */
  readonly unplaced: string | undefined;
  /** Number of stops that are committed but not confirmed. */
  readonly leaving: number;
  /** Number of stopping replicas that were available and may still serve. */
  readonly leavingReady: number;
  /**
   * Number of live replicas on draining nodes, stopping or not. Each allows one more live replica.
   */
  readonly draining: number;
  readonly missing: readonly Missing[];
  /** Replicas that may always stop. */
  readonly unreadyVictims: readonly RolloutReplica[];
  /** Replicas that may stop while the available ones alone satisfy `minAvailable`. */
  readonly unprovenVictims: readonly RolloutReplica[];
  /**
   * Replicas that may stop as `minAvailable` allows: surplus, then draining, then outdated ones.
   */
  readonly readyVictims: readonly RolloutReplica[];
  /** Number of `availableVictims` that are surplus. */
  readonly surplusReady: number;
  /** Number of `availableVictims` on draining nodes. */
  readonly drainingReady: number;
}

/** Counts and groups replicas in one pass; only replicas that may stop are sorted. */
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

/** The counts that decide the next steps. */
export interface Counts {
  readonly live: number;
  readonly ready: number;
  readonly leaving: number;
  readonly leavingReady: number;
  readonly draining: number;
  readonly surplusReady: number;
  readonly drainingReady: number;
  /** Number of replicas to create. */
  readonly missing: number;
  /** Number of available replicas to replace, on nodes that are not draining. */
  readonly outdatedReady: number;
  /** Number of stops of this decision that need no permission. */
  readonly unreadyStops: number;
}

/** How many replicas to create, and how many available victims to stop. */
export interface Moves {
  readonly creates: number;
  readonly readyStops: number;
}

/**
 * Computes the numbers of a rolling update.
 *
 * Creations: up to `want + maxSurge` live replicas, and one more for each draining replica. Stops
 * of available replicas, in two shares:
 * - *free*: available replicas beyond `want` that exist because of a scale-down or a drain; without
 *   a batch limit, as availability does not suffer;
 * - *batch*: at most `batch` at once, unconfirmed stops included, and only while more than
 *   `minAvailable` and no fewer than `want − batch` are available. The second limit makes a batch
 *   wait until available replicas have replaced the previous one.
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

/** The replicas that a decision creates and stops. */
export interface Acts {
  readonly creates: readonly Missing[];
  readonly stops: readonly RolloutReplica[];
}

/** The creations and stops that the limits allow now. */
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

export const toCreate = ({ version, nodeId }: Missing): RolloutStep =>
  nodeId === undefined
    ? { kind: 'createReplica', version }
    : { kind: 'createReplica', version, nodeId };

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
/** Tells whether a replica holds resources and is not stopping. */
export const isStaying = (replica: RolloutReplica): boolean =>
  !replica.lost && replica.desired === 'running';

export function countOf<T>(all: readonly T[], isSo: (one: T) => boolean): number {
  let count = 0;
  for (const one of all) if (isSo(one)) count += 1;
  return count;
}

/** `count` times the same; empty when negative. */
export const times = (count: number, missing: Missing): readonly Missing[] =>
  new Array<Missing>(Math.max(0, count)).fill(missing);

/** The replicas of a group beyond `count`, in disruption order. */
export function excessOf(
  group: readonly RolloutReplica[],
  count: number,
): readonly RolloutReplica[] {
  return group.length > count ? byDisruptionOrder(group).slice(0, group.length - count) : [];
}

/** In disruption order: unready, then not yet available, then the newest. */
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
