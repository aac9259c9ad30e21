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

/**
 * Tells whether a replica has not ended: it is pending, assigned, starting, running or stopping.
 */
export function isLive({ phase }: Pick<ReplicaRecord, 'phase'>): boolean {
  return phase <= Phase.STOPPING;
}

/**
 * Tells whether a replica holds resources of a node: it is placed, has not ended, and is not lost.
 */
export function holdsResources(replica: Pick<ReplicaRecord, 'phase' | 'nodeId' | 'lost'>): boolean {
  return replica.nodeId !== '' && isLive(replica) && !replica.lost;
}

/**
 * Tells whether a replica is a tombstone: lost with its node, and kept until the node returns and
 * confirms the stop.
 */
export function isTombstone({ lost, phase }: Pick<ReplicaRecord, 'lost' | 'phase'>): boolean {
  return lost && phase !== Phase.STOPPED;
}
