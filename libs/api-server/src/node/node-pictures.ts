import { create, toBinary } from '@bufbuild/protobuf';
import { DrainStatusSchema, MessageWriter, NodeSchema, NodeStatusSchema } from '@cloudless/api';
import type { NodeRecord } from '@cloudless/api/store';
import { toDrainStatus, type NodeLiveStatus } from '@cloudless/cluster-state';
import type { NodeAllocation, ReadDeps } from '../ports.js';
import {
  isConnected,
  listConditions,
  presentNodeFacts,
  presentNodeHead,
} from './node-presenter.js';

/** The encoded parts of a node that follow from its record alone. */
interface NodePicture {
  readonly record: NodeRecord;
  readonly head: Uint8Array;
  readonly facts: Uint8Array;
}

/** Most nodes whose parts are kept, about 500 bytes each. */
const MAX_KEPT_NODES = 20_000;
/** Number of the field `status` in the API message of a node. */
const STATUS_FIELD = 8;

/**
 * The API messages of nodes, encoded. The parts that follow from the record are kept until the
 * record changes. The others (liveness, conditions, usage, sums, drain) change with each message of
 * the agent or of a replica, and are encoded anew for each reader.
 */
export class NodePictures {
  private readonly pictures = new Map<string, NodePicture>();
  private readonly writer = new MessageWriter();
  private readonly unsubscribe: () => void;
  private builtCount = 0;

  constructor(private readonly deps: Pick<ReadDeps, 'state' | 'nodes' | 'placements'>) {
    this.unsubscribe = deps.state.subscribe((changes) => {
      for (const { kind, id } of changes) if (kind === 'node') this.pictures.delete(id);
    });
  }

  /** Number of records whose parts were encoded since the start. */
  get builtRecords(): number {
    return this.builtCount;
  }

  close(): void {
    this.unsubscribe();
    this.pictures.clear();
  }

  /**
   * Returns the message of `presentNode`, encoded behind its length as a varint.
   * @param includeUsage - False to leave out `status.usage`.
   */
  encode(record: NodeRecord, includeUsage = true): Uint8Array {
    const { head, facts } = this.getPicture(record);
    const live = this.deps.nodes.status(record.id);
    const allocated = this.deps.placements.getAllocated(record.id);
    const { writer } = this;
    // As a field, so that the message is behind its length; the tag is removed at the end.
    const start = writer.begin(1);
    writer.raw(head);
    const status = writer.begin(STATUS_FIELD);
    writer.raw(facts);
    this.writeLive(live, allocated);
    if (includeUsage && live.usage !== undefined) {
      const usage = writer.begin(6);
      writer.int32(1, live.usage.cpuMillis);
      writer.int64(2, live.usage.memoryBytes);
      writer.int64(3, live.usage.storageBytes);
      writer.unknown(live.usage.$unknown);
      writer.end(usage);
    }
    const drain = toDrainStatus({ view: this.deps.state.view(), nodes: this.deps.nodes }, record);
    if (drain !== undefined) writer.encoded(18, toBinary(DrainStatusSchema, drain));
    writer.end(status);
    writer.end(start);
    return writer.finish().subarray(1);
  }

  private writeLive(live: NodeLiveStatus, allocated: NodeAllocation): void {
    const { writer } = this;
    writer.int32(1, live.phase);
    for (const { type, status, reason } of listConditions(live)) {
      const condition = writer.begin(2);
      writer.int32(1, type);
      writer.bool(2, status);
      writer.string(3, reason);
      writer.end(condition);
    }
    const sums = writer.begin(4);
    writer.int32(1, allocated.cpuMillis);
    writer.int64(2, BigInt(allocated.memoryBytes));
    writer.int64(3, BigInt(allocated.storageBytes));
    writer.int64(4, BigInt(allocated.bandwidthBps));
    writer.int32(5, allocated.gpus);
    for (const [name, amount] of Object.entries(allocated.custom)) {
      const entry = writer.begin(6);
      writer.string(1, name);
      writer.int64(2, BigInt(amount));
      writer.end(entry);
    }
    writer.end(sums);
    writer.int32(8, allocated.replicas);
    if (isConnected(live)) writer.timestampMs(14, live.connectedSinceMs);
    writer.timestampMs(15, live.lastSeenMs);
    writer.double(16, live.reliability);
    writer.string(17, live.reason);
  }

  private getPicture(record: NodeRecord): NodePicture {
    const known = this.pictures.get(record.id);
    if (known?.record === record) return known;
    const picture: NodePicture = {
      record,
      head: toBinary(NodeSchema, presentNodeHead(record)),
      facts: toBinary(NodeStatusSchema, create(NodeStatusSchema, presentNodeFacts(record))),
    };
    this.builtCount += 1;
    this.pictures.delete(record.id);
    this.pictures.set(record.id, picture);
    for (const [id] of this.pictures) {
      if (this.pictures.size <= MAX_KEPT_NODES) break;
      this.pictures.delete(id);
    }
    return picture;
  }
}
