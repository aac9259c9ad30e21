import type { ReplicaRecord } from '@cloudless/api/store';

/**
 * A prototype of a packed record of many replicas of one workload, in columns. Holds what changes in
 * the life of a replica; the other fields would be in single records.
 */
export interface ReplicaColumns {
  readonly count: number;
  readonly sequence: Float64Array;
  readonly version: Int32Array;
  readonly phase: Uint8Array;
  readonly ready: Uint8Array;
  readonly restarts: Int32Array;
  readonly orderRevision: Float64Array;
  readonly readySinceMs: Float64Array;
  /** Index in `nodeIds`. */
  readonly node: Uint16Array;
  readonly nodeIds: string[];
  /** 32 bytes for each replica. */
  readonly containerIds: Uint8Array;
}

/** Bytes of a container id. */
const CONTAINER_ID_BYTES = 32;

/** Creates columns for `count` replicas that are not placed. */
export function createColumns(count: number): ReplicaColumns {
  return {
    count,
    sequence: new Float64Array(count),
    version: new Int32Array(count),
    phase: new Uint8Array(count),
    ready: new Uint8Array(count),
    restarts: new Int32Array(count),
    orderRevision: new Float64Array(count),
    readySinceMs: new Float64Array(count),
    node: new Uint16Array(count),
    nodeIds: [''],
    containerIds: new Uint8Array(count * CONTAINER_ID_BYTES),
  };
}

/** Sets one replica of a block. */
export function setReplica(columns: ReplicaColumns, index: number, replica: ReplicaRecord): void {
  columns.sequence[index] = Number(replica.sequence);
  columns.version[index] = replica.version;
  columns.phase[index] = replica.phase;
  columns.ready[index] = replica.ready ? 1 : 0;
  columns.restarts[index] = replica.restarts;
  columns.orderRevision[index] = Number(replica.orderRevision);
  columns.readySinceMs[index] = Number(replica.readySince?.seconds ?? 0n) * 1_000;
  let node = columns.nodeIds.indexOf(replica.nodeId);
  if (node < 0) node = columns.nodeIds.push(replica.nodeId) - 1;
  columns.node[index] = node;
  columns.containerIds.set(Buffer.from(replica.containerId, 'hex'), index * CONTAINER_ID_BYTES);
}

const scratch = Buffer.allocUnsafeSlow(256 * 1024);

/** Writes a block: numbers as varints, revisions and times as differences to the previous one. */
export function encodeColumns(columns: ReplicaColumns): Uint8Array {
  let at = writeVarint(0, columns.count);
  at = writeVarint(at, columns.nodeIds.length);
  for (const id of columns.nodeIds) {
    at = writeVarint(at, id.length);
    at += scratch.write(id, at, 'latin1');
  }
  for (const column of [
    columns.version,
    columns.phase,
    columns.ready,
    columns.restarts,
    columns.node,
  ])
    for (const value of column) at = writeVarint(at, value);
  for (const column of [columns.sequence, columns.orderRevision, columns.readySinceMs]) {
    let previous = 0;
    for (const value of column) {
      at = writeVarint(at, toZigzag(value - previous));
      previous = value;
    }
  }
  scratch.set(columns.containerIds, at);
  return new Uint8Array(scratch.subarray(0, at + columns.containerIds.length));
}

/** Reads a block. */
export function decodeColumns(bytes: Uint8Array): ReplicaColumns {
  const reader = new VarintReader(bytes);
  const columns = createColumns(reader.next());
  const nodes = reader.next();
  columns.nodeIds.length = 0;
  for (let index = 0; index < nodes; index += 1) columns.nodeIds.push(reader.text(reader.next()));
  for (const column of [
    columns.version,
    columns.phase,
    columns.ready,
    columns.restarts,
    columns.node,
  ])
    for (let index = 0; index < columns.count; index += 1) column[index] = reader.next();
  for (const column of [columns.sequence, columns.orderRevision, columns.readySinceMs]) {
    let value = 0;
    for (let index = 0; index < columns.count; index += 1) {
      value += fromZigzag(reader.next());
      column[index] = value;
    }
  }
  columns.containerIds.set(bytes.subarray(reader.at));
  return columns;
}

class VarintReader {
  at = 0;

  constructor(private readonly bytes: Uint8Array) {}

  next(): number {
    let value = 0;
    let factor = 1;
    for (;;) {
      const byte = this.bytes[this.at++] ?? 0;
      value += (byte & 0x7f) * factor;
      if (byte < 0x80) return value;
      factor *= 0x80;
    }
  }

  text(length: number): string {
    this.at += length;
    return Buffer.from(
      this.bytes.buffer,
      this.bytes.byteOffset + this.at - length,
      length,
    ).toString('latin1');
  }
}

function writeVarint(start: number, value: number): number {
  let at = start;
  let rest = value;
  while (rest > 0x7f) {
    scratch[at++] = (rest % 0x80) | 0x80;
    rest = Math.floor(rest / 0x80);
  }
  scratch[at++] = rest;
  return at;
}

function toZigzag(value: number): number {
  return value < 0 ? -2 * value - 1 : 2 * value;
}

function fromZigzag(value: number): number {
  return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
}
