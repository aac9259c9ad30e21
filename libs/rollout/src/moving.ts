import { assert } from '@cloudless/base';
import type { RolloutObserved, RolloutReplica } from './observed.js';
import { crowdedOut } from './seats.js';
import { isStaying } from './tally.js';

/**
 * Makes whoever has to leave its node count as draining: also one on a node that is no seat, and
 * one too many on a seat. A forced one is not held by any floor: it counts as unready.
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
  assert(open.size === observed.want, 'as many are wanted as there are seats');
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
