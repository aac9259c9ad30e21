import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';
import { fromBinary } from '@bufbuild/protobuf';
import {
  AgentMessageSchema,
  CoordinatorMessageSchema,
  type MessageWriter,
  type CoordinatorMessage,
  type ReplicaStatus_Phase,
} from '@cloudless/api';

/** The fields of an order that a light agent needs. */
export interface LightOrder {
  readonly replicaId: string;
  readonly workloadUid: string;
  readonly orderRevision: bigint;
  readonly kind: 'start' | 'stop' | 'forget';
  /** Version of the replica template; 0 unless `kind` is `start`. */
  readonly version: number;
}

/** The fields of a replica report that a light agent sets. */
export interface LightReport {
  readonly replicaId: string;
  readonly workloadUid: string;
  readonly orderRevision: bigint;
  readonly phase: ReplicaStatus_Phase;
  readonly ready: boolean;
  readonly forgotten: boolean;
  /** Facts about the process; absent for a replica that is forgotten. */
  readonly container?: { readonly pid: number; readonly startedAtMs: number };
}

const orderField = CoordinatorMessageSchema.field.order.number;

/** A message of the coordinator: an order, or any other message. */
export type DecodedMessage =
  | { readonly order: LightOrder; readonly message?: never }
  | {
      readonly order?: never;
      readonly message: Exclude<CoordinatorMessage['message'], { case: 'order' }>;
    };

/**
 * Decodes a message of the coordinator. Orders are read field by field, because an order for each
 * replica is most of what agents receive.
 * @throws Error for an order that is not a start, stop or forget order, and for an order behind an
 *   unknown field: the benchmark would wait for the report forever.
 */
export function decodeCoordinatorMessage(bytes: Uint8Array): DecodedMessage {
  const reader = new BinaryReader(bytes);
  const [field] = reader.pos < reader.len ? reader.tag() : [0];
  if (field !== orderField) {
    const { message } = fromBinary(CoordinatorMessageSchema, bytes);
    if (message.case === 'order') throw new Error('order behind an unknown field');
    return { message };
  }
  return { order: readOrder(reader, reader.uint32() + reader.pos) };
}

/** Reads a message of type Order; the numbers are those of its fields. */
function readOrder(reader: BinaryReader, end: number): LightOrder {
  const order = { replicaId: '', workloadUid: '', orderRevision: 0n, version: 0 };
  let kind: LightOrder['kind'] | undefined;
  while (reader.pos < end) {
    const [field, wireType] = reader.tag();
    if (field === 2) order.orderRevision = BigInt(reader.int64());
    else if (field === 3) order.replicaId = reader.string();
    else if (field === 4) order.workloadUid = reader.string();
    else if (field === 5) {
      kind = 'start';
      order.version = readVersion(reader, reader.uint32() + reader.pos);
    } else {
      if (field === 6) kind = 'stop';
      if (field === 7) kind = 'forget';
      reader.skip(wireType, field);
    }
  }
  if (kind === undefined) throw new Error(`order of an unknown kind for ${order.replicaId}`);
  return { ...order, kind };
}

/** Reads field 3, `version`, of a message of type StartOrder. */
function readVersion(reader: BinaryReader, end: number): number {
  let version = 0;
  while (reader.pos < end) {
    const [field, wireType] = reader.tag();
    if (field === 3 && wireType === WireType.Varint) version = reader.int32();
    else reader.skip(wireType, field);
  }
  return version;
}

/** Encodes a message of type AgentMessage that contains a report. */
export function encodeReportMessage(writer: MessageWriter, report: LightReport): Uint8Array {
  const start = writer.begin(AgentMessageSchema.field.report.number);
  writeReport(writer, report);
  writer.end(start);
  return writer.finish();
}

/**
 * Encodes a message of type AgentMessage that contains a part of the inventory. The numbers are
 * those of the fields of Inventory.
 */
export function encodeInventoryMessage(
  writer: MessageWriter,
  reports: readonly LightReport[],
  last: boolean,
): Uint8Array {
  const inventory = writer.begin(AgentMessageSchema.field.inventory.number);
  for (const report of reports) {
    const start = writer.begin(1);
    writeReport(writer, report);
    writer.end(start);
  }
  writer.bool(2, last);
  writer.end(inventory);
  return writer.finish();
}

/**
 * Writes the fields of a message of type ReplicaReport, by their numbers; field 30 is a message of
 * type ContainerFacts.
 */
function writeReport(writer: MessageWriter, report: LightReport): void {
  const { container } = report;
  writer.string(1, report.replicaId);
  writer.string(2, report.workloadUid);
  writer.int64(3, report.orderRevision);
  writer.int32(4, report.phase);
  writer.bool(5, report.ready);
  if (container !== undefined) writer.string(7, `process-${report.replicaId}`);
  writer.bool(14, report.forgotten);
  if (container === undefined) return;
  const start = writer.begin(30);
  writer.int32(1, container.pid);
  writer.timestampMs(2, container.startedAtMs);
  writer.string(3, 'process');
  writer.end(start);
}
