import { assert } from '@cloudless/base';
import type { RolloutObserved, RolloutReplica } from './observed.js';
import { crowdedOut } from './seats.js';
import { isStaying } from './tally.js';

/**
 * Marks every replica that has to leave its node as draining, also a replica on a node that is no
 * target and a duplicate on a target node. A forced replica also counts as unready, so that
 * `minAvailable` does not protect it.
 */
export function withMoves(observed: RolloutObserved): RolloutObserved {
  const { want, replicas, seats } = observed;
  if (seats !== undefined) return withMovesToSeats(observed, want === 0 ? [] : seats);
  return replicas.some(isForced)
    ? {
        ...observed,
        replicas: replicas.map((replica) => (isForced(replica) ? moved(replica) : replica)),
      }
    : observed;
}

function withMovesToSeats(observed: RolloutObserved, seats: readonly string[]): RolloutObserved {
  const open = new Set(seats);
  assert(open.size === observed.want, 'want is the number of global targets');
  const isSeated = (replica: RolloutReplica): boolean =>
    replica.nodeId !== undefined && open.has(replica.nodeId);
  const candidates = observed.replicas.filter(
    (one) => isStaying(one) && isSeated(one) && !one.draining && !isForced(one),
  );
  const crowd = crowdedOut(observed, seats, candidates);
  const mayStay = (replica: RolloutReplica): boolean =>
    isSeated(replica) && !isForced(replica) && !crowd.has(replica);
  if (observed.replicas.every(mayStay)) return observed;
  return {
    ...observed,
    replicas: observed.replicas.map((replica) => (mayStay(replica) ? replica : moved(replica))),
  };
}

const isForced = (replica: RolloutReplica): boolean => replica.forced === true;

function moved(replica: RolloutReplica): RolloutReplica {
  if (isForced(replica)) return { ...replica, draining: true, ready: false, unproven: false };
  return replica.draining ? replica : { ...replica, draining: true };
}
