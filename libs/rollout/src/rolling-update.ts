import { assert } from '@cloudless/base';
import type { RolloutDecision } from './decision.js';
import type { RolloutObserved, RolloutReplica } from './observed.js';
import { choosePausedSeats, chooseSeats } from './seats.js';
import {
  actsOf,
  byDisruptionOrder,
  countOf,
  excessOf,
  isReady,
  isStaying,
  isUnready,
  tallyOf,
  times,
  toSteps,
  type Choose,
  type Missing,
  type Tally,
} from './tally.js';
import { pausedWith, waitFor, whySetWaits } from './waiting.js';

/**
 * Decides the next steps of a rolling update within `minAvailable` and the maximum of live
 * replicas.
 * @param updated - The canary step: at most this many replicas of the new version. Undefined: all.
 */
export function decideRollingUpdate(observed: RolloutObserved, updated?: number): RolloutDecision {
  const tally = tallyOf(observed.replicas, chooserOf(observed, updated));
  const steps = toSteps(actsOf(observed, tally));
  if (steps.length > 0) return { kind: 'steps', steps };
  return whyWaiting(observed, tally, updated) ?? { kind: 'converged' };
}

/** Returns the function that chooses which replicas a rolling update keeps. */
export function chooserOf(observed: RolloutObserved, updated = observed.want): Choose {
  const { want, version, baseVersion = version, paused, seats } = observed;
  if (seats !== undefined) {
    assert(updated >= want, 'canary steps are not for one replica per node');
    const open = want === 0 ? [] : seats;
    return paused === true ? choosePausedSeats(open, baseVersion) : chooseSeats(open, version);
  }
  if (paused === true) return choosePaused(observed, baseVersion);
  return updated >= want || baseVersion === version
    ? chooseVersion(version, want)
    : chooseCanary([
        { version: baseVersion, count: want - updated },
        { version, count: updated },
      ]);
}

/** Keeps `want` replicas of one version. */
export function chooseVersion(version: number, want: number): Choose {
  return (candidates) => {
    const current = candidates.filter((replica) => replica.version === version);
    const outdated =
      current.length === candidates.length
        ? []
        : candidates.filter((replica) => replica.version !== version);
    return {
      surplus: excessOf(current, want),
      outdated: byDisruptionOrder(outdated),
      missing: times(want - current.length, { version }),
    };
  };
}

/**
 * Keeps a number of replicas of each version. Replicas above that are outdated and are stopped in
 * batches.
 */
function chooseCanary(
  shares: readonly { readonly version: number; readonly count: number }[],
): Choose {
  return (candidates) => {
    const outdated: RolloutReplica[] = candidates.filter((replica) =>
      shares.every(({ version }) => version !== replica.version),
    );
    const missing: Missing[] = [];
    for (const { version, count } of shares) {
      const own = candidates.filter((replica) => replica.version === version);
      outdated.push(...excessOf(own, count));
      missing.push(...times(count - own.length, { version }));
    }
    return { surplus: [], outdated: byDisruptionOrder(outdated), missing };
  };
}

/**
 * Keeps every replica while the rollout is paused, also a surplus of several versions up to `want +
 * maxSurge`, so that a failed new replica can be examined. As such a replica may never be ready, it
 * does not prevent the replacement of a draining one.
 */
function choosePaused({ want, maxSurge }: RolloutObserved, baseVersion: number): Choose {
  return (candidates, drainingReady) => {
    const count = candidates.length;
    const mixed = candidates.some(({ version }) => version !== candidates[0]?.version);
    const most = want === 0 ? 0 : want + maxSurge;
    const stuck = countOf(
      candidates,
      (replica) => isUnready(replica) && replica.version !== baseVersion,
    );
    return {
      surplus: excessOf(candidates, mixed ? most : want),
      outdated: [],
      missing: times(Math.min(want - count + Math.min(stuck, drainingReady), most - count), {
        version: baseVersion,
      }),
    };
  };
}

function whyWaiting(
  observed: RolloutObserved,
  tally: Tally,
  updated = observed.want,
): RolloutDecision | undefined {
  const { want, version, baseVersion = version, paused } = observed;
  const staying = observed.replicas.filter(isStaying);
  const canary = paused !== true && updated < want && baseVersion !== version;
  if (
    canary &&
    tally.leaving === 0 &&
    tally.readyVictims.length + tally.unprovenVictims.length === 0
  ) {
    // Replicas of the previous version need not be ready: the update may be the repair.
    const fresh = countOf(staying, (replica) => isReady(replica) && replica.version === version);
    if (fresh >= updated)
      return waitFor(
        'stepReached',
        'permission',
        `${fresh} of ${want} replicas run version ${version}, as the canary step requires`,
      );
  }
  const why = whySetWaits(observed, tally);
  if (why !== undefined) return why;
  const others = countOf(staying, (replica) => replica.version !== version);
  return others > 0 ? pausedWith(others) : undefined;
}
