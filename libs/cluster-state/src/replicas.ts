import { clone, create, type MessageInitShape } from '@bufbuild/protobuf';
import { ReplicaStatus_Phase as Phase } from '@cloudless/api';
import { ReplicaRecordSchema, type ReplicaRecord } from '@cloudless/api/store';

/**
 * A changed copy of a replica; the record in the view stays as it is. A change to `undefined`
 * clears the field.
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

/** It has not ended: it waits, starts, runs or stops. */
export function isLive({ phase }: Pick<ReplicaRecord, 'phase'>): boolean {
  return phase <= Phase.STOPPING;
}

/** Its node keeps resources for it: placed, not ended, and the node not lost. */
export function holdsResources(replica: Pick<ReplicaRecord, 'phase' | 'nodeId' | 'lost'>): boolean {
  return replica.nodeId !== '' && isLive(replica) && !replica.lost;
}

/**
 * Lost with its node: it has ended for us only, and is kept until the node is back, has heard of it
 * and has confirmed the stop.
 */
export function isTombstone({ lost, phase }: Pick<ReplicaRecord, 'lost' | 'phase'>): boolean {
  return lost && phase !== Phase.STOPPED;
}
