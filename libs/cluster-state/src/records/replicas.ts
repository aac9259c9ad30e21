import { create, isMessage, type DescField, type MessageInitShape } from '@bufbuild/protobuf';
import { ReplicaStatus_Phase as Phase } from '@cloudless/api';
import { ReplicaRecordSchema, type ReplicaRecord } from '@cloudless/api/store';

type Properties = Record<string, unknown>;

/** The fields of a new replica with their initial values, in the order of the schema. */
const initialFields = Object.entries(create(ReplicaRecordSchema)).filter(
  ([name]) => name !== '$typeName',
);
/** The fields that a new replica does not have. */
const absentFields = ReplicaRecordSchema.fields
  .map(({ localName }) => localName)
  .filter((name) => !initialFields.some(([initial]) => initial === name));

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
  const changed = changes as Properties;
  const copy: Properties = { $typeName: replica.$typeName };
  // The order of the properties is that of decoded records, which keeps reads of them fast.
  for (const [name, initial] of initialFields)
    copy[name] =
      name in changed ? (toMessages(name, changed[name]) ?? toOwn(initial)) : before[name];
  for (const name of absentFields) {
    const value = name in changed ? toMessages(name, changed[name]) : before[name];
    if (value !== undefined) copy[name] = value;
  }
  if (replica.$unknown !== undefined) copy['$unknown'] = replica.$unknown;
  return copy as unknown as ReplicaRecord;
}

/** The only initial values of replicas that can be changed are lists. */
function toOwn(initial: unknown): unknown {
  return Array.isArray(initial) ? [] : initial;
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
