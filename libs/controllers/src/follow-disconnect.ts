import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { disconnectTimesOf, type DisconnectTimes } from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import { copyReplica, isLive } from '@cloudless/cluster-state';
import { msOf } from './scheduler-input.js';
import { MAX_REPLICA_WRITES, type WorkloadPass } from './workload-pass.js';

/** The fields of a replica that hold the disconnect policy. */
export type DisconnectFields = Pick<ReplicaRecord, 'stopAfter' | 'lostAfter'>;

/** The disconnect fields of a new replica. */
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
 * changed stop time sends a new order to the agent. A shorter `lost_after` applies only after the
 * agent has confirmed the newest order: until then the agent may still act on the older one. Adds
 * at most {@link MAX_REPLICA_WRITES} writes.
 */
export function followDisconnect(
  { workload, replicas, transaction, deleting }: WorkloadPass,
  revision: bigint,
): void {
  if (deleting) return;
  const { stopAfterMs, lostAfterMs } = disconnectTimesOf(workload.value.spec);
  for (const replica of replicas) {
    const { value } = replica;
    if (transaction.size >= MAX_REPLICA_WRITES) return;
    if (!isLive(value) || value.lost || !value.desiredRunning) continue;
    const heldMs = msOf(value.lostAfter);
    const placed = value.nodeId !== '';
    const reorder =
      stopAfterMs !== (value.stopAfter === undefined ? undefined : msOf(value.stopAfter));
    const unconfirmed = placed && (reorder || value.stopAfterUnconfirmed);
    const waitMs = unconfirmed ? Math.max(heldMs, lostAfterMs) : lostAfterMs;
    if (!reorder && waitMs === heldMs) continue;
    const next = copyReplica(value, {
      stopAfterUnconfirmed: unconfirmed,
      ...(reorder && placed ? { orderRevision: revision } : {}),
    });
    delete next.stopAfter;
    delete next.lostAfter;
    const fields = toDisconnectFields({
      lostAfterMs: waitMs,
      ...(stopAfterMs === undefined ? {} : { stopAfterMs }),
    });
    transaction.updateReplica(replica, Object.assign(next, fields));
  }
}
