import { assert } from '@cloudless/base';
import type { RolloutObserved, RolloutReplica } from './observed.js';
import { findDuplicates } from './global-targets.js';
import { isStaying } from './replica-tally.js';

/**
 * Marks every replica that has to leave its node as draining, also a replica on a node that is no
 * target and a duplicate on a target node. Marks a forced replica as unready, so that
 * `minAvailable` does not protect it.
 */
export function markMovingAsDraining(observed: RolloutObserved): RolloutObserved {
  const { want, replicas, globalTargets } = observed;
  if (globalTargets !== undefined)
    return markMovingToTargets(observed, want === 0 ? [] : globalTargets);
  return replicas.some(isForced)
    ? {
        ...observed,
        replicas: replicas.map((replica) => (isForced(replica) ? markDraining(replica) : replica)),
      }
    : observed;
}

function markMovingToTargets(
  observed: RolloutObserved,
  globalTargets: readonly string[],
): RolloutObserved {
  const targets = new Set(globalTargets);
  assert(targets.size === observed.want, 'want is the number of global targets');
  const isOnTarget = (replica: RolloutReplica): boolean =>
    replica.nodeId !== undefined && targets.has(replica.nodeId);
  const candidates = observed.replicas.filter(
    (replica) =>
      isStaying(replica) && isOnTarget(replica) && !replica.draining && !isForced(replica),
  );
  const duplicates = findDuplicates(observed, globalTargets, candidates);
  const mayStay = (replica: RolloutReplica): boolean =>
    isOnTarget(replica) && !isForced(replica) && !duplicates.has(replica);
  if (observed.replicas.every(mayStay)) return observed;
  return {
    ...observed,
    replicas: observed.replicas.map((replica) =>
      mayStay(replica) ? replica : markDraining(replica),
    ),
  };
}

const isForced = (replica: RolloutReplica): boolean => replica.forced === true;

function markDraining(replica: RolloutReplica): RolloutReplica {
  if (isForced(replica))
    return { ...replica, draining: true, available: false, notYetAvailable: false };
  return replica.draining ? replica : { ...replica, draining: true };
}
