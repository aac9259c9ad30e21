import {
  create,
  isMessage,
  type DescField,
  type DescMessage,
  type MessageInitShape,
} from '@bufbuild/protobuf';
import { ReplicaStatus_Phase as Phase } from '@cloudless/api';
import { assert } from '@cloudless/base';
import { ReplicaRecordSchema, type ReplicaRecord } from '@cloudless/api/store';
import { shareBigint } from './shared-parts.js';

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
  endpoints: NO_ITEMS,
  earlierContainerIds: NO_ITEMS,
  lastLines: NO_ITEMS,
});
const EMPTY_PROPERTIES = EMPTY_REPLICA as unknown as Properties;
assert(
  ReplicaRecordSchema.fields.every(({ fieldKind }) => fieldKind !== 'map'),
  'all replicas would share one map: the reader adds entries to the map of the empty replica',
);
/** The types of the messages in the fields of a new replica; undefined for other fields. */
const initialFieldTypes: ReadonlyMap<string, DescMessage | undefined> = new Map(
  ReplicaRecordSchema.fields
    .filter(({ localName }) => localName in EMPTY_REPLICA)
    .map(({ localName, message }) => [localName, message]),
);
/** The fields that a new replica does not have. */
const optionalFields = ReplicaRecordSchema.fields
  .map(({ localName }) => localName)
  .filter((name) => !(name in EMPTY_REPLICA));

/** Copies the optional fields that a replica has, in the order of the schema. */
function copyOptionalFields(from: ReplicaRecord, to: ReplicaRecord): void {
  if (from.createdAt !== undefined) to.createdAt = from.createdAt;
  if (from.readySince !== undefined) to.readySince = from.readySince;
  if (from.lastExitCode !== undefined) to.lastExitCode = from.lastExitCode;
  if (from.lostAt !== undefined) to.lostAt = from.lostAt;
  if (from.stopAfter !== undefined) to.stopAfter = from.stopAfter;
  if (from.lostAfter !== undefined) to.lostAfter = from.lostAfter;
  if (from.imagePull !== undefined) to.imagePull = from.imagePull;
  if (from.container !== undefined) to.container = from.container;
  if (from.nextStartAt !== undefined) to.nextStartAt = from.nextStartAt;
  if (from.failedStarts !== undefined) to.failedStarts = from.failedStarts;
}
const COPIED =
  'createdAt readySince lastExitCode lostAt stopAfter lostAfter imagePull container nextStartAt ' +
  'failedStarts';
assert(optionalFields.join(' ') === COPIED, 'copyOptionalFields does not copy all fields in order');

/**
 * Lists the values of all fields of a replica in the order of their numbers, undefined for absent
 * ones. An encoder that reads them by their names needs a multiple of the time.
 * @param values - Receives the values.
 */
export function listReplicaValues(replica: ReplicaRecord, values: unknown[]): void {
  values[0] = replica.id;
  values[1] = replica.uid;
  values[2] = replica.sequence;
  values[3] = replica.slot;
  values[4] = replica.version;
  values[5] = replica.nodeId;
  values[6] = replica.desiredRunning;
  values[7] = replica.phase;
  values[8] = replica.ready;
  values[9] = replica.reason;
  values[10] = replica.containerId;
  values[11] = replica.restarts;
  values[12] = replica.endpoints;
  values[13] = replica.createdAt;
  values[14] = replica.readySince;
  values[15] = replica.lastExitCode;
  values[16] = replica.orderRevision;
  values[17] = replica.lost;
  values[18] = replica.lostAt;
  values[19] = replica.stopReason;
  values[20] = replica.earlierContainerIds;
  values[21] = replica.lastEndReason;
  values[22] = replica.onlyNodeId;
  values[23] = replica.lastLines;
  values[24] = replica.imagePull;
  values[25] = replica.stopAfter;
  values[26] = replica.lostAfter;
  values[27] = replica.stopAfterUnconfirmed;
  values[28] = replica.container;
  values[29] = replica.nominatedNodeId;
  values[30] = replica.nextStartAt;
  values[31] = replica.failedStarts;
}

/**
 * Returns a copy of a list without the room that a decoded list has for further items; one list that
 * all replicas share for an empty list.
 */
export function compactList<Item>(list: readonly Item[]): Item[] {
  return list.length === 0 ? NO_ITEMS : list.slice();
}

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
  const changed = changes as Properties;
  const replicaCopy = copyInitialFields(replica);
  const copy = replicaCopy as unknown as Properties;
  let changesOptionalField = false;
  for (const name in changed) {
    const value = changed[name];
    if (!initialFieldTypes.has(name)) changesOptionalField = true;
    else if (value === undefined || typeof value === 'object')
      copy[name] = toMessages(initialFieldTypes.get(name), value) ?? EMPTY_PROPERTIES[name];
    else copy[name] = typeof value === 'bigint' ? shareBigint(value) : value;
  }
  if (changesOptionalField) setOptionalFields(copy, replica as unknown as Properties, changed);
  else copyOptionalFields(replica, replicaCopy);
  if (replica.$unknown !== undefined) copy['$unknown'] = replica.$unknown;
  return replicaCopy;
}

/** Sets the fields that a new replica does not have, in the order of the schema. */
function setOptionalFields(copy: Properties, before: Properties, changed: Properties): void {
  for (const name of optionalFields) {
    const value =
      name in changed
        ? toMessages(
            (ReplicaRecordSchema.field as Readonly<Record<string, DescField>>)[name]?.message,
            changed[name],
          )
        : before[name];
    if (value !== undefined) copy[name] = value;
  }
}

/** Creates a replica as `create` does, in the compact layout of {@link copyReplica}. */
export function createReplicaRecord(
  fields: Partial<MessageInitShape<typeof ReplicaRecordSchema>>,
): ReplicaRecord {
  return copyReplica(EMPTY_REPLICA, fields);
}

/**
 * Converts plain objects in the new value of a field to messages.
 * @param message - Type of the messages; undefined for a field without messages.
 */
function toMessages(message: DescMessage | undefined, value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value ?? undefined;
  if (Array.isArray(value) && value.length === 0) return NO_ITEMS;
  if (message === undefined) return value;
  const toMessage = (item: unknown): unknown =>
    isMessage(item, message) ? item : create(message, item as Properties);
  return Array.isArray(value) ? value.map(toMessage) : toMessage(value);
}

/**
 * Returns the `orderRevision` of a changed order: newer than that of the order before, also when that
 * order has the revision of the commit that created the replica.
 * @param view - The view on which the change is decided.
 */
export function getNextOrderRevision(
  { revision }: { readonly revision: bigint },
  { orderRevision }: Pick<ReplicaRecord, 'orderRevision'>,
): bigint {
  return revision > orderRevision ? revision : orderRevision + 1n;
}

/** Returns true for a replica that is pending, assigned, starting, running or stopping. */
export function isLive({ phase }: Pick<ReplicaRecord, 'phase'>): boolean {
  return phase <= Phase.STOPPING;
}

/**
 * Returns the phase that users see: STOPPING from the stop order on, before the agent reports this
 * phase.
 */
export function toShownPhase({
  phase,
  desiredRunning,
}: Pick<ReplicaRecord, 'phase' | 'desiredRunning'>): Phase {
  return isLive({ phase }) && !desiredRunning ? Phase.STOPPING : phase;
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
