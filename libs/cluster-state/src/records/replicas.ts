import { create, isMessage, type DescField, type MessageInitShape } from '@bufbuild/protobuf';
import { ReplicaStatus_Phase as Phase } from '@cloudless/api';
import { assert } from '@cloudless/base';
import { ReplicaRecordSchema, type ReplicaRecord } from '@cloudless/api/store';

type Properties = Record<string, unknown>;

/** Shared by all replicas with an empty list, because lists of records are read-only. */
const NO_ITEMS = Object.freeze([]) as unknown as never[];

/**
 * Copies the fields that every replica has. One literal with all of them, in the order of the
 * schema: V8 then gives all replicas the same compact layout, which is fast to create and to read.
 */
const copyInitialFields = (replica: ReplicaRecord): ReplicaRecord => ({
  $typeName: replica.$typeName,
  id: replica.id,
  uid: replica.uid,
  sequence: replica.sequence,
  slot: replica.slot,
  version: replica.version,
  nodeId: replica.nodeId,
  desiredRunning: replica.desiredRunning,
  phase: replica.phase,
  ready: replica.ready,
  reason: replica.reason,
  containerId: replica.containerId,
  restarts: replica.restarts,
  endpoints: replica.endpoints,
  orderRevision: replica.orderRevision,
  lost: replica.lost,
  stopReason: replica.stopReason,
  earlierContainerIds: replica.earlierContainerIds,
  stopAfterUnconfirmed: replica.stopAfterUnconfirmed,
  lastEndReason: replica.lastEndReason,
  onlyNodeId: replica.onlyNodeId,
  lastLines: replica.lastLines,
  nominatedNodeId: replica.nominatedNodeId,
});

/** A new replica. */
const EMPTY_REPLICA = copyInitialFields({
  ...create(ReplicaRecordSchema),
  ...{ endpoints: NO_ITEMS, earlierContainerIds: NO_ITEMS, lastLines: NO_ITEMS },
});
assert(
  ReplicaRecordSchema.fields.every(({ fieldKind }) => fieldKind !== 'map'),
  'all replicas would share one map: the reader adds entries to the map of the empty replica',
);
/** The fields that a new replica does not have. */
const absentFields = ReplicaRecordSchema.fields
  .map(({ localName }) => localName)
  .filter((name) => !(name in EMPTY_REPLICA));

/** Creates a replica as `create` does, with empty lists that all replicas share. */
export function createEmptyReplica(): ReplicaRecord {
  return copyInitialFields(EMPTY_REPLICA);
}

/**
 * Copies a replica with changes; the original stays as it is. A change to `undefined` clears the
 * field. The copy shares lists and messages with the original and with `changes`: replace them
 * instead of changing them.
 */
export function copyReplica(
  replica: ReplicaRecord,
  changes: Partial<MessageInitShape<typeof ReplicaRecordSchema>>,
): ReplicaRecord {
  const before = replica as unknown as Properties;
  const initial = EMPTY_REPLICA as unknown as Properties;
  const changed = changes as Properties;
  const copy = copyInitialFields(replica) as unknown as Properties;
  for (const name of Object.keys(changed))
    if (name in initial) copy[name] = toMessages(name, changed[name]) ?? initial[name];
  // In the order of the schema, as in decoded records.
  for (const name of absentFields) {
    const value = name in changed ? toMessages(name, changed[name]) : before[name];
    if (value !== undefined) copy[name] = value;
  }
  if (replica.$unknown !== undefined) copy['$unknown'] = replica.$unknown;
  return copy as unknown as ReplicaRecord;
}

/** Creates a replica as `create` does, in the compact layout of {@link copyReplica}. */
export function createReplicaRecord(
  fields: Partial<MessageInitShape<typeof ReplicaRecordSchema>>,
): ReplicaRecord {
  return copyReplica(EMPTY_REPLICA, fields);
}

/** Converts plain objects in the new value of a field to messages. */
function toMessages(name: string, value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value ?? undefined;
  const message = (ReplicaRecordSchema.field as Readonly<Record<string, DescField>>)[name]?.message;
  if (message === undefined) return value;
  const toMessage = (item: unknown): unknown =>
    isMessage(item, message) ? item : create(message, item as Properties);
  return Array.isArray(value) ? value.map(toMessage) : toMessage(value);
}

/** Returns true for a replica that is pending, assigned, starting, running or stopping. */
export function isLive({ phase }: Pick<ReplicaRecord, 'phase'>): boolean {
  return phase <= Phase.STOPPING;
}

/** Returns true for a replica that waits for a node: pending, without a node, not ordered to stop. */
export function waitsForNode({
  nodeId,
  desiredRunning,
  phase,
}: Pick<ReplicaRecord, 'nodeId' | 'desiredRunning' | 'phase'>): boolean {
  return nodeId === '' && desiredRunning && phase === Phase.PENDING;
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
