import { WireType } from '@bufbuild/protobuf/wire';
import type { Condition, NodeUsage } from '../gen/cloudless/api/node_pb.js';
import type { ReplicaUsage, Usage } from '../gen/cloudless/api/session_pb.js';
import type { MessageReader } from './message-reader.js';

const [VARINT, DELIMITED] = [WireType.Varint, WireType.LengthDelimited];

/** Reads what an agent has measured, for `decodeMessage`. */
export function readUsage(reader: MessageReader): Usage {
  const usage: Usage = { $typeName: 'cloudless.api.Usage', conditions: [], replicas: [] };
  while (!reader.isAtEnd) {
    const tag = reader.tag();
    if (tag === ((1 << 3) | DELIMITED)) usage.usage = reader.message(readNodeUsage, usage.usage);
    else if (tag === ((2 << 3) | DELIMITED)) usage.conditions.push(reader.message(readCondition));
    else if (tag === ((3 << 3) | DELIMITED)) usage.replicas.push(reader.message(readReplicaUsage));
    else reader.refuseField();
  }
  return usage;
}

function readNodeUsage(reader: MessageReader): NodeUsage {
  const usage: NodeUsage = {
    $typeName: 'cloudless.api.NodeUsage',
    cpuMillis: 0,
    memoryBytes: 0n,
    storageBytes: 0n,
  };
  while (!reader.isAtEnd) {
    const tag = reader.tag();
    if (tag === ((1 << 3) | VARINT)) usage.cpuMillis = reader.int32();
    else if (tag === ((2 << 3) | VARINT)) usage.memoryBytes = reader.int64();
    else if (tag === ((3 << 3) | VARINT)) usage.storageBytes = reader.int64();
    else reader.refuseField();
  }
  return usage;
}

function readCondition(reader: MessageReader): Condition {
  const condition: Condition = {
    $typeName: 'cloudless.api.Condition',
    type: 0,
    status: false,
    reason: '',
  };
  while (!reader.isAtEnd) {
    const tag = reader.tag();
    if (tag === ((1 << 3) | VARINT)) condition.type = reader.int32();
    else if (tag === ((2 << 3) | VARINT)) condition.status = reader.bool();
    else if (tag === ((3 << 3) | DELIMITED)) condition.reason = reader.string();
    else reader.refuseField();
  }
  return condition;
}

function readReplicaUsage(reader: MessageReader): ReplicaUsage {
  const usage: ReplicaUsage = { $typeName: 'cloudless.api.ReplicaUsage', replicaId: '' };
  while (!reader.isAtEnd) {
    const tag = reader.tag();
    if (tag === ((1 << 3) | DELIMITED)) usage.replicaId = reader.string();
    else if (tag === ((2 << 3) | VARINT)) usage.cpuMillis = reader.int32();
    else if (tag === ((3 << 3) | VARINT)) usage.memoryBytes = reader.int64();
    else reader.refuseField();
  }
  return usage;
}
