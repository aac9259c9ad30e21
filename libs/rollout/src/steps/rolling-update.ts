import { assert } from '@cloudless/base';
import type { RolloutDecision } from './decision.js';
import type { RolloutObserved, RolloutReplica } from './observed.js';
import { choosePausedGlobalTargets, chooseGlobalTargets } from './global-targets.js';
import {
  createExtraTest,
  decideActions,
  sortByDisruptionOrder,
  countWhere,
  findExcess,
  isAvailable,
  isStaying,
  isUnready,
  tallyReplicas,
  repeat,
  toSteps,
  type ChooseReplicas,
  type MissingReplica,
  type ReplicaTally,
} from './replica-tally.js';
import { waitPaused, waitFor, explainSetWait } from './waiting.js';

/**
 * Decides the next steps of a rolling update within `minAvailable` and the maximum of live
 * replicas.
 * @param updated - The canary step: at most this many replicas of the new version. Undefined: all.
 */
export function decideRollingUpdate(observed: RolloutObserved, updated?: number): RolloutDecision {
  const tally = tallyReplicas(
    observed.replicas,
    createChooser(observed, updated),
    createExtraTest(observed),
    observed,
  );
  const steps = toSteps(decideActions(observed, tally));
  if (steps.length > 0) return { kind: 'steps', steps };
  return explainWait(observed, tally, updated) ?? { kind: 'converged' };
}

/** Returns the function that chooses which replicas a rolling update keeps. */
export function createChooser(observed: RolloutObserved, updated = observed.want): ChooseReplicas {
  const { want, version, baseVersion = version, paused, globalTargets } = observed;
  const { waiting = 0, alsoAvailable = 0 } = observed;
  if (globalTargets !== undefined) {
    assert(updated >= want, 'canary steps are not for one replica per node');
    const targets = want === 0 ? [] : globalTargets;
    return paused === true
      ? choosePausedGlobalTargets(targets, baseVersion, observed.replicas)
      : chooseGlobalTargets(targets, version, observed.replicas);
  }
  if (paused === true) return choosePaused(observed, baseVersion);
  return updated >= want || baseVersion === version
    ? chooseVersion(version, want - waiting - alsoAvailable)
    : chooseCanary([
        { version: baseVersion, count: want - updated },
        { version, count: updated },
      ]);
}

/** Keeps `want` replicas of one version. */
export function chooseVersion(version: number, want: number): ChooseReplicas {
  return (candidates) => {
    const isCurrent = (replica: RolloutReplica): boolean => replica.version === version;
    // Outside of an update, all replicas have the version.
    const areCurrent = candidates.every(isCurrent);
    const current = areCurrent ? candidates : candidates.filter(isCurrent);
    const outdated = areCurrent ? [] : candidates.filter((replica) => !isCurrent(replica));
    return {
      surplus: findExcess(current, want),
      outdated: sortByDisruptionOrder(outdated),
      missing: repeat(want - current.length, { version }),
    };
  };
}

/**
 * Keeps a number of replicas of each version of `shares`. All other replicas are outdated and stop
 * in batches.
 */
function chooseCanary(
  shares: readonly { readonly version: number; readonly count: number }[],
): ChooseReplicas {
  return (candidates) => {
    const outdated: RolloutReplica[] = candidates.filter((replica) =>
      shares.every(({ version }) => version !== replica.version),
    );
    const missing: MissingReplica[] = [];
    for (const { version, count } of shares) {
      const ofVersion = candidates.filter((replica) => replica.version === version);
      outdated.push(...findExcess(ofVersion, count));
      missing.push(...repeat(count - ofVersion.length, { version }));
    }
    return { surplus: [], outdated: sortByDisruptionOrder(outdated), missing };
  };
}

/**
 * Keeps every replica while the rollout is paused, also a surplus of several versions up to `want +
 * maxSurge`, so that a failed new replica can be examined. As a failed new replica may never be
 * ready, it does not prevent the replacement of a draining replica.
 */
function choosePaused({ want, maxSurge }: RolloutObserved, baseVersion: number): ChooseReplicas {
  return (candidates, drainingAvailable) => {
    const count = candidates.length;
    const isMixed = candidates.some(({ version }) => version !== candidates[0]?.version);
    const maxReplicas = want === 0 ? 0 : want + maxSurge;
    const unreadyNew = countWhere(
      candidates,
      (replica) => isUnready(replica) && replica.version !== baseVersion,
    );
    return {
      surplus: findExcess(candidates, isMixed ? maxReplicas : want),
      outdated: [],
      missing: repeat(
        Math.min(want - count + Math.min(unreadyNew, drainingAvailable), maxReplicas - count),
        {
          version: baseVersion,
        },
      ),
    };
  };
}

function explainWait(
  observed: RolloutObserved,
  tally: ReplicaTally,
  updated = observed.want,
): RolloutDecision | undefined {
  const { want, version, baseVersion = version, paused } = observed;
  const isCanary = paused !== true && updated < want && baseVersion !== version;
  if (
    isCanary &&
    tally.leaving === 0 &&
    tally.availableVictims.length + tally.notYetAvailableVictims.length === 0
  ) {
    // Replicas of the previous version need not be ready: the update may be the repair.
    const available = countWhere(
      observed.replicas,
      (replica) => isStaying(replica) && isAvailable(replica) && replica.version === version,
    );
    if (available >= updated)
      return waitFor(
        'stepReached',
        'permission',
        `${available} of ${want} replicas run version ${version}, as the canary step requires`,
      );
  }
  const wait = explainSetWait(observed, tally);
  if (wait !== undefined) return wait;
  const others = countWhere(
    observed.replicas,
    (replica) => isStaying(replica) && replica.version !== version,
  );
  return others > 0 ? waitPaused(others) : undefined;
}
