import { fromBinary, type DescMessage, type Message } from '@bufbuild/protobuf';
import type { Timestamp } from '@bufbuild/protobuf/wkt';
import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';
import {
  AgentMessageSchema,
  type AgentMessage,
  type ReplicaReport,
} from '../gen/cloudless/api/session_pb.js';
import {
  ContainerFactsSchema,
  EndpointSchema,
  ImagePullStatusSchema,
} from '../gen/cloudless/api/workload_pb.js';

/**
 * Decodes a message as `fromBinary` does. Reports of replicas, which agents send for every change,
 * are decoded without reflection, in about a fifth of the time.
 * @throws The errors of `fromBinary`.
 */
export function decodeMessage(schema: DescMessage, bytes: Uint8Array): Message {
  const report = schema === AgentMessageSchema ? decodeReportMessage(bytes) : undefined;
  // Unknown fields are views of the bytes that a message was decoded from. These must not be a part
  // of a larger buffer, which a stored message would keep in memory.
  return report ?? fromBinary(schema, new Uint8Array(bytes));
}

/** Field `report` of AgentMessage, length-delimited. */
const REPORT_TAG = (3 << 3) | WireType.LengthDelimited;

/**
 * Returns undefined for everything but one report with known fields, each at most once: also for
 * malformed bytes, whose error `fromBinary` describes.
 */
function decodeReportMessage(bytes: Uint8Array): AgentMessage | undefined {
  if (bytes[0] !== REPORT_TAG) return undefined;
  try {
    const reader = new BinaryReader(bytes);
    reader.pos = 1;
    if (reader.uint32() !== bytes.byteLength - reader.pos) return undefined;
    const value = readReport(reader);
    if (value === undefined || reader.pos !== bytes.byteLength) return undefined;
    return { $typeName: 'cloudless.api.AgentMessage', message: { case: 'report', value } };
  } catch {
    return undefined;
  }
}

function readReport(reader: BinaryReader): ReplicaReport | undefined {
  const report: ReplicaReport = {
    $typeName: 'cloudless.api.ReplicaReport',
    replicaId: '',
    workloadUid: '',
    orderRevision: 0n,
    phase: 0,
    ready: false,
    reason: '',
    containerId: '',
    restarts: 0,
    endpoints: [],
    earlierContainerIds: [],
    lastEndReason: '',
    forgotten: false,
    lastLines: [],
  };
  while (reader.pos < reader.len) if (!readField(report, reader, readTag(reader))) return undefined;
  return report;
}

const [VARINT, DELIMITED] = [WireType.Varint, WireType.LengthDelimited];

/**
 * @param tag - Number and wire type of the field, as they are encoded.
 * @returns False for a field that only `fromBinary` reads: unknown, with another wire type, or a
 *   message that would be merged with an earlier one.
 */
function readField(report: ReplicaReport, reader: BinaryReader, tag: number): boolean {
  switch (tag) {
    case (1 << 3) | DELIMITED:
      report.replicaId = reader.string(true);
      return true;
    case (2 << 3) | DELIMITED:
      report.workloadUid = reader.string(true);
      return true;
    case (3 << 3) | VARINT:
      report.orderRevision = readInt64(reader);
      return true;
    case (4 << 3) | VARINT:
      report.phase = reader.int32();
      return true;
    case (5 << 3) | VARINT:
      report.ready = reader.bool();
      return true;
    case (6 << 3) | DELIMITED:
      report.reason = reader.string(true);
      return true;
    case (7 << 3) | DELIMITED:
      report.containerId = reader.string(true);
      return true;
    case (8 << 3) | VARINT:
      report.restarts = reader.int32();
      return true;
    case (9 << 3) | DELIMITED: {
      const endpoint = fromBinary(EndpointSchema, reader.bytes());
      report.endpoints.push(endpoint);
      return endpoint.$unknown === undefined;
    }
    case (10 << 3) | VARINT:
      report.lastExitCode = reader.int32();
      return true;
    case (11 << 3) | DELIMITED: {
      const startedAt = report.startedAt === undefined ? readTimestamp(reader) : undefined;
      if (startedAt !== undefined) report.startedAt = startedAt;
      return startedAt !== undefined;
    }
    case (12 << 3) | DELIMITED:
      report.earlierContainerIds.push(reader.string(true));
      return true;
    case (13 << 3) | DELIMITED:
      report.lastEndReason = reader.string(true);
      return true;
    case (14 << 3) | VARINT:
      report.forgotten = reader.bool();
      return true;
    case (15 << 3) | DELIMITED:
      report.lastLines.push(reader.string(true));
      return true;
    case (16 << 3) | DELIMITED:
      if (report.imagePull !== undefined) return false;
      report.imagePull = fromBinary(ImagePullStatusSchema, reader.bytes());
      return report.imagePull.$unknown === undefined;
    case (30 << 3) | DELIMITED:
      if (report.container !== undefined) return false;
      report.container = fromBinary(ContainerFactsSchema, reader.bytes());
      return report.container.$unknown === undefined;
    default:
      return false;
  }
}

/** Returns number and wire type of a field; 0 when they take more bytes than any known field. */
function readTag(reader: BinaryReader): number {
  const start = reader.pos;
  const tag = reader.uint32();
  return reader.pos - start > 2 ? 0 : tag;
}

/** Returns undefined for a time with other fields than its own. */
function readTimestamp(reader: BinaryReader): Timestamp | undefined {
  const length = reader.uint32();
  const end = reader.pos + length;
  const time: Timestamp = { $typeName: 'google.protobuf.Timestamp', seconds: 0n, nanos: 0 };
  while (reader.pos < end) {
    const tag = readTag(reader);
    if (tag === ((1 << 3) | VARINT)) time.seconds = readInt64(reader);
    else if (tag === ((2 << 3) | VARINT)) time.nanos = reader.int32();
    else return undefined;
  }
  return reader.pos === end ? time : undefined;
}

/** The type of `int64` depends on options that no schema of this library sets. */
function readInt64(reader: BinaryReader): bigint {
  return BigInt(reader.int64());
}
