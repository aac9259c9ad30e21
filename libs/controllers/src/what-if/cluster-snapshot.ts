import { create } from '@bufbuild/protobuf';
import { sizeDelimitedDecodeStream, sizeDelimitedEncode } from '@bufbuild/protobuf/wire';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  SnapshotEntrySchema,
  SnapshotHeaderSchema,
  type ControlRecord,
  type NodeRecord,
  type ReplicaRecord,
  type SnapshotEntry,
  type SnapshotHeader,
  type SnapshotNode,
  type VersionRecord,
  type WorkloadRecord,
} from '@cloudless/api/store';
import { CloudlessError, type Clock } from '@cloudless/base';
import type { NodeLiveStatus } from '@cloudless/cluster-state';
import type { SimulationSource } from '../dry-run/simulation-source.js';
import { createRecordSource, ALIVE_NODE_STATUS, type RecordSource } from './record-source.js';
import {
  redactControl,
  redactNode,
  redactReplica,
  redactVersion,
  redactWorkload,
} from './redaction.js';

/** Version of the format. A reader refuses another one. */
const FORMAT = 1;
/** Bytes of a chunk at least, except the last chunk. */
const CHUNK_BYTES = 64 * 1024;
/** Bytes of an entry at most. A spec takes at most 1.5 MiB. */
const MAX_ENTRY_BYTES = 4 * 1024 * 1024;

/**
 * Fields that this version does not know stay out, also of nested messages: a newer version may have
 * stored a secret there.
 */
const ENCODING = { writeUnknownFields: false };

type Entry = Exclude<SnapshotEntry['entry'], { case: undefined }>;

/**
 * Encodes the records of a source as a snapshot, without secrets: see `redaction.ts`.
 * @param clusterId - Id of the cluster.
 * @returns The chunks. The source must stay open until the last one was read.
 */
export function* encodeSnapshot(
  source: Pick<SimulationSource, 'view' | 'nodes' | 'clock'>,
  clusterId: string,
): Generator<Uint8Array> {
  let parts: Uint8Array[] = [];
  let size = 0;
  let entries = 0;
  const takeChunk = (): Uint8Array => {
    const chunk = concatenate(parts, size);
    [parts, size] = [[], 0];
    return chunk;
  };
  const add = (entry: Entry): boolean => {
    const message = create(SnapshotEntrySchema, { entry });
    const bytes = sizeDelimitedEncode(SnapshotEntrySchema, message, ENCODING);
    parts.push(bytes);
    size += bytes.length;
    return size >= CHUNK_BYTES;
  };
  add({
    case: 'header',
    value: create(SnapshotHeaderSchema, {
      format: FORMAT,
      clusterId,
      revision: source.view.revision,
      takenAt: timestampFromMs(source.clock.wallTime()),
    }),
  });
  for (const entry of listEntries(source)) {
    entries += 1;
    if (add(entry)) yield takeChunk();
  }
  add({
    case: 'end',
    value: { $typeName: 'cloudless.store.SnapshotEnd', entries: BigInt(entries) },
  });
  yield takeChunk();
}

function* listEntries({ view, nodes }: Pick<SimulationSource, 'view' | 'nodes'>): Generator<Entry> {
  for (const { value } of view.nodes())
    yield { case: 'node', value: toSnapshotNode(value, nodes.status(value.id)) };
  for (const { value } of view.workloads()) {
    const { uid } = value;
    yield { case: 'workload', value: redactWorkload(value) };
    for (const record of view.versions(uid))
      yield {
        case: 'version',
        value: {
          $typeName: 'cloudless.store.SnapshotVersion',
          uid,
          record: redactVersion(record),
        },
      };
    const control = view.control(uid)?.value;
    if (control !== undefined) yield { case: 'control', value: redactControl(control) };
    for (const replica of view.replicasOf(uid))
      yield { case: 'replica', value: redactReplica(replica.value) };
  }
}

function toSnapshotNode(record: NodeRecord, status: NodeLiveStatus): SnapshotNode {
  const { alive, memoryPressure, diskPressure, networkUnavailable } = status;
  const { containersUnavailable, diskFull, quarantined, reliability } = status;
  return {
    $typeName: 'cloudless.store.SnapshotNode',
    record: redactNode(record),
    ...{ alive, memoryPressure, diskPressure, networkUnavailable },
    ...{ containersUnavailable, diskFull, quarantined, reliability },
    processesUnavailable: status.processesProblem !== '',
  };
}

/** A snapshot that was read. */
export interface ReadSnapshot {
  readonly header: SnapshotHeader;
  /** Number of nodes, workloads and replicas. */
  readonly nodes: number;
  readonly workloads: number;
  readonly replicas: number;
  /** Creates the source of a simulation. */
  createSource(clock: Pick<Clock, 'wallTime'>): RecordSource;
}

/**
 * Reads a snapshot.
 * @throws {@link CloudlessError} of kind `precondition` when the bytes are no snapshot, are
 *   incomplete or damaged, or have another format.
 */
export async function readSnapshot(chunks: AsyncIterable<Uint8Array>): Promise<ReadSnapshot> {
  const reader = new SnapshotReader();
  try {
    const options = { readMaxBytes: MAX_ENTRY_BYTES };
    for await (const { entry } of sizeDelimitedDecodeStream(SnapshotEntrySchema, chunks, options))
      reader.add(entry);
  } catch (reason) {
    if (reason instanceof CloudlessError) throw reason;
    throw createDamagedError('it cannot be decoded', reason);
  }
  return reader.finish();
}

class SnapshotReader {
  private header: SnapshotHeader | undefined;
  private isComplete = false;
  private count = 0;
  private readonly nodes: NodeRecord[] = [];
  private readonly statuses = new Map<string, NodeLiveStatus>();
  private readonly workloads: WorkloadRecord[] = [];
  private readonly versions: (readonly [string, VersionRecord])[] = [];
  private readonly controls: ControlRecord[] = [];
  private readonly replicas: ReplicaRecord[] = [];

  add(entry: SnapshotEntry['entry']): void {
    if (this.isComplete) throw createDamagedError('it continues after its end');
    if ((this.header === undefined) !== (entry.case === 'header'))
      throw createDamagedError('it does not begin with a header');
    this.count += 1;
    switch (entry.case) {
      case 'header':
        this.header = entry.value;
        this.count = 0;
        if (entry.value.format !== FORMAT)
          throw new CloudlessError(
            'precondition',
            `the snapshot has format ${entry.value.format}, and this version reads format ${FORMAT}; use the cloudlessctl of the cluster`,
          );
        return;
      case 'node':
        return this.addNode(entry.value);
      case 'workload':
        this.workloads.push(entry.value);
        return;
      case 'version':
        if (entry.value.record !== undefined)
          this.versions.push([entry.value.uid, entry.value.record]);
        return;
      case 'control':
        this.controls.push(entry.value);
        return;
      case 'replica':
        this.replicas.push(entry.value);
        return;
      case 'end':
        this.isComplete = entry.value.entries === BigInt(this.count - 1);
        if (!this.isComplete) throw createDamagedError('entries are missing');
        return;
      case undefined:
        throw createDamagedError('it contains an unknown entry');
    }
  }

  finish(): ReadSnapshot {
    const { header, nodes, workloads, versions, controls, replicas, statuses } = this;
    if (header === undefined || !this.isComplete) throw createDamagedError('its end is missing');
    const { revision } = header;
    return {
      header,
      nodes: nodes.length,
      workloads: workloads.length,
      replicas: replicas.length,
      createSource: (clock) =>
        createRecordSource(
          { revision, nodes, workloads, versions, controls, replicas },
          { clock, getStatus: (id) => statuses.get(id) },
        ),
    };
  }

  private addNode({ record, ...status }: SnapshotNode): void {
    if (record === undefined) throw createDamagedError('a node has no record');
    this.nodes.push(record);
    const { alive, memoryPressure, diskPressure, networkUnavailable } = status;
    const { containersUnavailable, diskFull, quarantined, reliability } = status;
    this.statuses.set(record.id, {
      ...ALIVE_NODE_STATUS,
      ...{ alive, memoryPressure, diskPressure, networkUnavailable },
      ...{ containersUnavailable, diskFull, quarantined, reliability },
      // A snapshot keeps no texts of nodes.
      processesProblem: status.processesUnavailable ? 'the supervisor does not answer' : '',
    });
  }
}

function createDamagedError(problem: string, cause?: unknown): CloudlessError {
  return new CloudlessError(
    'precondition',
    `the file is no complete snapshot: ${problem}; save it again with "cloudlessctl admin snapshot"`,
    { cause },
  );
}

function concatenate(parts: readonly Uint8Array[], size: number): Uint8Array {
  const bytes = new Uint8Array(size);
  let offset = 0;
  for (const part of parts) {
    bytes.set(part, offset);
    offset += part.length;
  }
  return bytes;
}
