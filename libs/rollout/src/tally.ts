import type { RolloutLimits } from './limits.js';
import type { RolloutObserved, RolloutReplica } from './observed.js';

/** A world sorted into who stays and who goes. */
export interface Tally {
  /** Replicas that hold resources: all but those on lost nodes. */
  readonly live: number;
  /** Freshly ready and not on the way out: what the floor is about. */
  readonly ready: number;
  /** Right version and not on a draining node; more than `want` of them means surplus. */
  readonly keepers: number;
  /** Stops that are committed but not confirmed. */
  readonly leaving: number;
  /** Those of `leaving` that were ready and may still serve. */
  readonly leavingReady: number;
  /** Live replicas on draining nodes, leaving or not; each allows one more live replica. */
  readonly draining: number;
  /** May always go. */
  readonly unreadyVictims: readonly RolloutReplica[];
  /** May go while the ready ones alone hold the floor. */
  readonly unprovenVictims: readonly RolloutReplica[];
  /** Go as the floor allows: surplus, then draining, then other versions; each newest first. */
  readonly readyVictims: readonly RolloutReplica[];
  /** How many of `readyVictims` are surplus. */
  readonly surplusReady: number;
  /** How many of `readyVictims` are on draining nodes. */
  readonly drainingReady: number;
}

/** Sorts the replicas of a world: one pass, and ordering only among those that may go. */
export function tallyOf(observed: RolloutObserved): Tally {
  const counts = { live: 0, ready: 0, leaving: 0, leavingReady: 0, draining: 0 };
  const keepers: RolloutReplica[] = [];
  const draining: RolloutReplica[] = [];
  const outdated: RolloutReplica[] = [];
  for (const replica of observed.replicas) {
    if (replica.lost) continue;
    counts.live += 1;
    if (replica.draining) counts.draining += 1;
    if (replica.desired === 'stopped') {
      counts.leaving += 1;
      if (replica.ready) counts.leavingReady += 1;
      continue;
    }
    if (replica.ready) counts.ready += 1;
    if (replica.draining) draining.push(replica);
    else if (observed.paused === true || replica.version === observed.version) keepers.push(replica);
    else outdated.push(replica);
  }
  const surplus = keepers.length > observed.want ? byDisruptionOrder(keepers).slice(0, keepers.length - observed.want) : [];
  const victims = [...surplus, ...byDisruptionOrder(draining), ...byDisruptionOrder(outdated)];
  return {
    ...counts,
    keepers: keepers.length,
    unreadyVictims: victims.filter((replica) => !replica.ready && replica.unproven !== true),
    unprovenVictims: victims.filter((replica) => !replica.ready && replica.unproven === true),
    readyVictims: victims.filter(isReady),
    surplusReady: surplus.filter(isReady).length,
    drainingReady: draining.filter(isReady).length,
  };
}

/** The counts that a decision turns on. {@link Tally} satisfies it, and so does a model that only counts. */
export interface Counts extends Pick<
  Tally,
  'live' | 'ready' | 'keepers' | 'leavingReady' | 'draining' | 'surplusReady' | 'drainingReady'
> {
  /** Replicas of other versions, ready, on nodes that stay. */
  readonly outdatedReady: number;
  /** Stops of this decision that need no permission. */
  readonly unreadyStops: number;
  readonly leaving: number;
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
 * - *free*: what is ready beyond `want` and is there only because of a scale-down or a drain; no batch, as availability does not suffer;
 * - *batch*: at most `batch` at once, those still leaving included, and only while more than `minAvailable` and no fewer than
 *   `want − batch` are ready. The second bound makes a batch wait until the one before it has been replaced by ready replicas.
 */
export function movesOf(limits: RolloutLimits, counts: Counts): Moves {
  const { want, minAvailable, maxSurge, batch } = limits;
  const ceiling = want + maxSurge + counts.draining;
  const creates = Math.max(0, Math.min(want - counts.keepers, ceiling - counts.live));
  const staying = counts.live - counts.leaving;
  const going = counts.unreadyStops + counts.surplusReady + counts.drainingReady;
  const overCeiling = staying - going - (want === 0 ? 0 : want + maxSurge);
  const eligible = counts.surplusReady + counts.drainingReady + Math.min(counts.outdatedReady, Math.max(0, overCeiling));
  const free = Math.min(Math.max(0, counts.ready - want), eligible);
  const floor = Math.max(minAvailable, want - batch);
  const victims = counts.surplusReady + counts.drainingReady + counts.outdatedReady - free;
  const batched = Math.max(0, Math.min(batch - counts.leavingReady, counts.ready - free - floor, victims));
  return { creates, readyStops: free + batched };
}

const isReady = (replica: RolloutReplica): boolean => replica.ready;

/** Cheapest to lose first: unready, then unproven, then the newest. */
function byDisruptionOrder(replicas: readonly RolloutReplica[]): readonly RolloutReplica[] {
  return [...replicas].sort((a, b) => worth(a) - worth(b) || b.createdSequence - a.createdSequence || (a.id < b.id ? 1 : -1));
}

function worth(replica: RolloutReplica): number {
  if (replica.ready) return 2;
  return replica.unproven === true ? 1 : 0;
}
