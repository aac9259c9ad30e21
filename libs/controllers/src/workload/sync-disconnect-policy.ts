import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { definedFields } from '@cloudless/base';
import { resolveDisconnectTimes, type DisconnectTimes } from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import { copyReplica, getNextOrderRevision, isLive } from '@cloudless/cluster-state';
import { toMs } from '../common/duration.js';
import { MAX_REPLICA_WRITES, type WorkloadPass } from './workload-pass.js';

/** The fields of a replica that hold the disconnect policy. */
export type DisconnectFields = Pick<ReplicaRecord, 'stopAfter' | 'lostAfter'>;

/** Returns the disconnect fields of a new replica. */
export function toDisconnectFields({
  stopAfterMs,
  lostAfterMs,
}: DisconnectTimes): Partial<DisconnectFields> {
  return {
    ...(stopAfterMs === undefined ? {} : { stopAfter: durationFromMs(stopAfterMs) }),
    ...(lostAfterMs === 0 ? {} : { lostAfter: durationFromMs(lostAfterMs) }),
  };
}

/**
 * Updates the disconnect fields of running replicas to the current spec without a restart. A
 * changed stop time makes a new order for the agent. A shorter `lost_after` applies only after the
 * agent has confirmed the newest order, as the agent may act on the older order until then. Adds at
 * most {@link MAX_REPLICA_WRITES} writes.
 */
export function syncDisconnectPolicy({
  workload,
  replicas,
  transaction,
  deleting,
  view,
}: WorkloadPass): void {
  if (deleting) return;
  const { stopAfterMs, lostAfterMs } = resolveDisconnectTimes(workload.value.spec);
  for (const replica of replicas) {
    const { value } = replica;
    if (transaction.size >= MAX_REPLICA_WRITES) return;
    if (!isLive(value) || value.lost || !value.desiredRunning) continue;
    const orderedLostAfterMs = toMs(value.lostAfter);
    const isPlaced = value.nodeId !== '';
    const needsOrder =
      stopAfterMs !== (value.stopAfter === undefined ? undefined : toMs(value.stopAfter));
    const isUnconfirmed = isPlaced && (needsOrder || value.stopAfterUnconfirmed);
    const waitMs = isUnconfirmed ? Math.max(orderedLostAfterMs, lostAfterMs) : lostAfterMs;
    if (!needsOrder && waitMs === orderedLostAfterMs) continue;
    const next = copyReplica(value, {
      stopAfterUnconfirmed: isUnconfirmed,
      ...{ stopAfter: undefined, lostAfter: undefined },
      ...toDisconnectFields({ lostAfterMs: waitMs, ...definedFields({ stopAfterMs }) }),
      ...(needsOrder && isPlaced ? { orderRevision: getNextOrderRevision(view, value) } : {}),
    });
    transaction.updateReplica(replica, next);
  }
}
