import { MessageWriter } from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import type { ClusterState, RecordChange } from '@cloudless/cluster-state';
import { getListedReplicas, getZone } from '@cloudless/cluster-state';
import type { NodeDirectory } from '../node/node-directory.js';
import { isGlobal } from '../rollout/global-targets.js';
import { ALL_PARTS, PictureCache, type Picture } from './picture-cache.js';
import { writeReplicaStatus, type ShownNode } from './replica-encoder.js';

/** Encodes the parts of the API message of a workload. */
export interface WorkloadEncoder {
  /** Encodes the fields of Workload without `status`. */
  encodeHead(record: WorkloadRecord): Uint8Array;
  /** Encodes the fields of WorkloadStatus without replicas and versions. */
  encodeSummary(record: WorkloadRecord): Uint8Array;
  /** Encodes the field `versions` of WorkloadStatus. */
  encodeVersions(record: WorkloadRecord): Uint8Array;
}

export interface WorkloadPicturesDeps {
  readonly state: Pick<ClusterState, 'view' | 'subscribe'>;
  readonly nodes: Pick<NodeDirectory, 'isAlive' | 'subscribe'>;
  readonly encoder: WorkloadEncoder;
  /** Most bytes of all kept pictures. Default {@link MAX_PICTURE_BYTES}. */
  readonly maxBytes?: number;
}

/** An encoded replica, and what the bytes follow from. */
interface RecentReplica extends ShownNode {
  readonly replica: ReplicaRecord;
  readonly bytes: Uint8Array;
}

/** Single replicas whose bytes are kept, about 500 bytes each: those of some seconds of changes. */
const MAX_RECENT_REPLICAS = 8_192;
/** Enough for the whole messages of workloads with about 160,000 replicas. */
const MAX_PICTURE_BYTES = 64 * 1024 * 1024;
/** Numbers of the fields of the API messages that are put together here. */
const STATUS_FIELD = 5;
const REPLICAS_FIELD = 12;
const OMITTED_REPLICAS_FIELD = 15;

/**
 * The API messages of workloads, encoded. Each part is kept until a record changes that the part
 * shows, or until a node of its replicas becomes silent or returns, so that any number of readers
 * and watchers of an unchanged workload cost one encoding. Pictures of mode GLOBAL are not kept:
 * their targets follow from all nodes and from the time.
 *
 * Listeners of the state run in the order of their registration. Create this object before any
 * listener that reads pictures.
 */
export class WorkloadPictures {
  private readonly pictures: PictureCache;
  private readonly recent = new Map<string, RecentReplica>();
  private readonly writer = new MessageWriter();
  private readonly unsubscribes: readonly (() => void)[];
  private builtReplicas = 0;
  private builtWorkloads = 0;

  constructor(private readonly deps: WorkloadPicturesDeps) {
    this.pictures = new PictureCache(deps.maxBytes ?? MAX_PICTURE_BYTES);
    this.unsubscribes = [
      deps.state.subscribe((changes) => {
        if (this.pictures.size > 0) for (const change of changes) this.applyChange(change);
      }),
      deps.nodes.subscribe((nodeId) => this.dropReplicasOn(nodeId)),
    ];
  }

  /** Numbers of encoded messages since the start, and bytes of the kept ones. */
  get figures(): {
    readonly builtWorkloads: number;
    readonly builtReplicas: number;
    readonly keptBytes: number;
  } {
    const { builtWorkloads, builtReplicas } = this;
    return { builtWorkloads, builtReplicas, keptBytes: this.pictures.keptBytes };
  }

  close(): void {
    for (const unsubscribe of this.unsubscribes) unsubscribe();
    this.pictures.clear();
    this.recent.clear();
  }

  /**
   * Returns the API message of a workload with versions and the replicas of
   * {@link getListedReplicas}, behind its length as a varint. Do not change the bytes.
   * @param record - A record of the current view.
   */
  getFull(record: WorkloadRecord): Uint8Array {
    const picture = this.pictures.take(record.uid);
    if (picture.full !== undefined) {
      this.keep(record, picture, false);
      return picture.full;
    }
    const { encoder } = this.deps;
    const { replicas, omitted } = getListedReplicas(this.deps.state.view(), record.uid);
    const head = (picture.head ??= encoder.encodeHead(record));
    const summary = (picture.summary ??= encoder.encodeSummary(record));
    const versions = (picture.versions ??= encoder.encodeVersions(record));
    const { writer } = this;
    // As a field, so that the message is behind its length; the tag is removed below.
    const start = writer.begin(1);
    writer.raw(head);
    const status = writer.begin(STATUS_FIELD);
    writer.raw(summary);
    this.writeReplicas(replicas);
    writer.raw(versions);
    writer.int32(OMITTED_REPLICAS_FIELD, omitted);
    writer.end(status);
    writer.end(start);
    const full = writer.finish().subarray(1);
    this.builtWorkloads += 1;
    picture.full = full;
    this.keep(record, picture, true);
    return full;
  }

  /** Returns the API message without replicas and versions, as {@link getFull} does. */
  getBrief(record: WorkloadRecord): Uint8Array {
    const picture = this.pictures.take(record.uid);
    const brief = (picture.brief ??= this.encodeBrief(record, picture));
    this.keep(record, picture, false);
    return brief;
  }

  private encodeBrief(record: WorkloadRecord, picture: Picture): Uint8Array {
    const { encoder } = this.deps;
    const head = (picture.head ??= encoder.encodeHead(record));
    if (picture.summary === undefined) {
      picture.summary = encoder.encodeSummary(record);
      this.builtWorkloads += 1;
    }
    const { writer } = this;
    const start = writer.begin(1);
    writer.raw(head);
    writer.encoded(STATUS_FIELD, picture.summary);
    writer.end(start);
    return writer.finish().subarray(1);
  }

  /** Returns the field `replicas` of WorkloadStatus with the messages of replicas. */
  encodeReplicas(replicas: readonly ReplicaRecord[]): Uint8Array {
    this.writeReplicas(replicas);
    return this.writer.finish();
  }

  /**
   * Returns the API message of a replica, behind its length. The last ones are kept, so that the
   * watchers of a change share its bytes.
   */
  getReplica(replica: ReplicaRecord): Uint8Array {
    const { zone, stale } = this.showNode(replica);
    const known = this.recent.get(replica.id);
    if (known?.replica === replica && known.zone === zone && known.stale === stale)
      return known.bytes;
    this.builtReplicas += 1;
    writeReplicaStatus(this.writer, 1, replica, { zone, stale });
    const bytes = this.writer.finish().subarray(1);
    this.recent.delete(replica.id);
    this.recent.set(replica.id, { replica, zone, stale, bytes });
    if (this.recent.size > MAX_RECENT_REPLICAS)
      for (const [oldest] of this.recent) {
        this.recent.delete(oldest);
        break;
      }
    return bytes;
  }

  private writeReplicas(replicas: readonly ReplicaRecord[]): void {
    for (const replica of replicas)
      writeReplicaStatus(this.writer, REPLICAS_FIELD, replica, this.showNode(replica));
    this.builtReplicas += replicas.length;
  }

  private showNode({ nodeId }: ReplicaRecord): ShownNode {
    if (nodeId === '') return NO_NODE;
    const node = this.deps.state.view().node(nodeId)?.value;
    return {
      zone: node === undefined ? '' : getZone(node),
      stale: !this.deps.nodes.isAlive(nodeId),
    };
  }

  /** Drops what shows the status of a workload, whose gate was evaluated. */
  dropSummary(uid: string): void {
    this.pictures.drop(uid, REPLICA_PARTS);
  }

  private keep(record: WorkloadRecord, picture: Picture, isNewlyWhole: boolean): void {
    if (!isGlobal(record.spec)) this.pictures.keep(record.uid, picture, isNewlyWhole);
  }

  private applyChange({ kind, id, before, after }: RecordChange): void {
    if (kind === 'replica') this.pictures.drop(id.slice(0, id.indexOf('/')), REPLICA_PARTS);
    else if (kind === 'version') this.pictures.drop(id.slice(0, id.indexOf('/')), VERSION_PARTS);
    else if (kind === 'control') {
      // A rollout changes the control record with each step, but the active version only at its end.
      const isSameVersion = before?.activeVersion === after?.activeVersion;
      this.pictures.drop(id, isSameVersion ? REPLICA_PARTS : VERSION_PARTS);
    } else if (kind === 'workload') {
      const isSameVersion = before?.version === after?.version;
      this.pictures.drop(id, isSameVersion ? WORKLOAD_PARTS : ALL_PARTS);
    } else if (kind === 'node') this.dropReplicasOn(id);
  }

  private dropReplicasOn(nodeId: string): void {
    if (this.pictures.size === 0) return;
    for (const { value } of this.deps.state.view().replicasOn(nodeId))
      this.pictures.drop(value.uid, NODE_PARTS);
  }
}

/** The parts that show a replica, the kept versions, the record of the workload, and a node. */
const REPLICA_PARTS = ['summary', 'brief', 'full'] as const;
const VERSION_PARTS = ['summary', 'versions', 'brief', 'full'] as const;
const WORKLOAD_PARTS = ['head', 'summary', 'brief', 'full'] as const;
const NODE_PARTS = ['full'] as const;
const NO_NODE: ShownNode = { zone: '', stale: false };
