import { clone, create, type MessageInitShape } from '@bufbuild/protobuf';
import { ReplicaStatus_Phase as Phase } from '@cloudless/api';
import { ReplicaRecordSchema, type ReplicaRecord } from '@cloudless/api/store';

/**
 * Copies a replica with changes; the original stays as it is. A change to `undefined` clears the
 * field.
 */
export function copyReplica(
  replica: ReplicaRecord,
  changes: Partial<MessageInitShape<typeof ReplicaRecordSchema>>,
): ReplicaRecord {
  const { $typeName: _name, $unknown: unknown, ...fields } = clone(ReplicaRecordSchema, replica);
  const { $typeName: _otherName, ...changed } = changes;
  const copy = create(ReplicaRecordSchema, { ...fields, ...changed });
  if (unknown !== undefined) copy.$unknown = unknown;
  return copy;
}

/** Returns true for a replica that is pending, assigned, starting, running or stopping. */
export function isLive({ phase }: Pick<ReplicaRecord, 'phase'>): boolean {
  return phase <= Phase.STOPPING;
}

/** Returns true for a replica that has a node, has not ended, and is not lost. */
export function holdsResources(replica: Pick<ReplicaRecord, 'phase' | 'nodeId' | 'lost'>): boolean {
  return replica.nodeId !== '' && isLive(replica) && !replica.lost;
}

/**
 * Returns true for a tombstone: a replica that was lost with its node, kept until the node returns
 * and confirms the stop.
 */
export function isTombstone({ lost, phase }: Pick<ReplicaRecord, 'lost' | 'phase'>): boolean {
  return lost && phase !== Phase.STOPPED;
}
