import { create, toBinary } from '@bufbuild/protobuf';
import { definedFields } from '@cloudless/base';
import {
  ReplicaStatusSchema,
  VersionInfoSchema,
  WorkloadSchema,
  WorkloadSpecSchema,
  WorkloadStatusSchema,
  setEncodedFields,
  type ReplicaStatus,
  type VersionInfo,
  type Workload,
  type WorkloadStatus,
} from '@cloudless/api';
import type { ReplicaRecord, VersionRecord, WorkloadRecord } from '@cloudless/api/store';
import {
  getListedReplicas,
  getZone,
  isLive,
  isTombstone,
  toShownPhase,
  type ClusterState,
  type ListedReplicas,
} from '@cloudless/cluster-state';
import { describeTraffic } from '../network/workload-traffic.js';
import type { NodeDirectory } from '../node/node-directory.js';
import { toGateStatus } from '../rollout/gate/gate-status.js';
import type { RolloutGates } from '../rollout/gate/rollout-gates.js';
import { findTargetsOfWorkload, type GlobalTargetSources } from '../rollout/global-targets.js';
import { toShownNextStart, toShownReason, toShownRestarts } from './replica-encoder.js';
import { describeTemplateChanges, summarizeTemplate } from './template-changes.js';
import { WorkloadPictures } from './workload-pictures.js';
import { toWorkloadStatus } from './workload-status.js';

/**
 * Builds the API messages of workloads and replicas from records and liveness, also as bytes that
 * are kept until something in them changes.
 */
export class WorkloadPresenter {
  private readonly pictures: WorkloadPictures;
  private readonly unsubscribe: (() => void) | undefined;

  constructor(
    private readonly state: ClusterState,
    private readonly nodes: Pick<NodeDirectory, 'isAlive' | 'subscribe'>,
    private readonly targetSources: Omit<GlobalTargetSources, 'view'>,
    private readonly options: {
      readonly maxPictureBytes?: number;
      /** The newest evaluations of gates. Default: none are shown. */
      readonly gates?: Pick<RolloutGates, 'find' | 'onEvaluated'>;
    } = {},
  ) {
    this.pictures = new WorkloadPictures({
      state,
      nodes,
      ...definedFields({ maxBytes: options.maxPictureBytes }),
      encoder: {
        encodeHead: (record) => toBinary(WorkloadSchema, this.presentHead(record)),
        encodeSummary: (record) => toBinary(WorkloadStatusSchema, this.presentSummary(record)),
        encodeVersions: (record) =>
          toBinary(
            WorkloadStatusSchema,
            create(WorkloadStatusSchema, { versions: this.presentVersions(record) }),
          ),
      },
    });
    this.unsubscribe = options.gates?.onEvaluated((uid) => this.pictures.dropSummary(uid));
  }

  /** Returns the weights with which network proxies choose the replicas of a workload now. */
  describeWeights(workload: WorkloadRecord): (replica: ReplicaRecord) => number {
    return describeTraffic(this.state.view(), workload).getWeight;
  }

  /** Numbers of encoded messages since the start, and bytes of the kept ones. */
  get pictureFigures(): WorkloadPictures['figures'] {
    return this.pictures.figures;
  }

  close(): void {
    this.unsubscribe?.();
    this.pictures.close();
  }

  /**
   * Builds the API message of a workload.
   * @param full - True to include the versions and the oldest replicas, see
   *   {@link getListedReplicas}.
   * @param listed - The replicas to include instead. Default: the oldest.
   */
  present(record: WorkloadRecord, full: boolean, listed?: ListedReplicas): Workload {
    const workload = this.presentHead(record);
    workload.status = this.presentSummary(record);
    if (full) {
      const { replicas, omitted } = listed ?? getListedReplicas(this.state.view(), record.uid);
      workload.status.omittedReplicas = omitted;
      workload.status.replicas = replicas.map((replica) => this.presentReplica(replica));
      workload.status.versions = this.presentVersions(record);
    }
    return workload;
  }

  /**
   * Builds the message of {@link present} with versions and the oldest replicas for a response in the
   * binary format. The replicas are encoded in the unknown fields of the status: 1,000 messages
   * would take a hundred times as long to build and to encode.
   */
  presentWithEncodedReplicas(record: WorkloadRecord): Workload {
    const workload = this.presentHead(record);
    const status = this.presentSummary(record);
    const { replicas, omitted } = getListedReplicas(this.state.view(), record.uid);
    status.omittedReplicas = omitted;
    status.versions = this.presentVersions(record);
    setEncodedFields(status, this.pictures.encodeReplicas(replicas));
    workload.status = status;
    return workload;
  }

  /**
   * Returns the message of {@link present} for a record of the current view, encoded behind its
   * length as a varint. Do not change the bytes: all readers share them.
   */
  encode(record: WorkloadRecord, full: boolean): Uint8Array {
    return full ? this.pictures.getFull(record) : this.pictures.getBrief(record);
  }

  /** Returns the message of {@link presentReplica}, encoded behind its length as a varint. */
  encodeReplica(replica: ReplicaRecord): Uint8Array {
    return this.pictures.getReplica(replica);
  }

  /** Builds the message without status. */
  private presentHead(record: WorkloadRecord): Workload {
    return create(WorkloadSchema, {
      namespace: record.namespace,
      name: record.name,
      uid: record.uid,
      spec: record.spec ?? create(WorkloadSpecSchema),
      generation: record.generation,
      ...definedFields({
        createdAt: record.createdAt,
        deletionRequestedAt: record.deletionRequestedAt,
      }),
    });
  }

  /** Builds the status without replicas and versions. */
  private presentSummary(record: WorkloadRecord): WorkloadStatus {
    const view = this.state.view();
    const control = view.control(record.uid)?.value;
    const targets = findTargetsOfWorkload({ ...this.targetSources, view }, record);
    const status = toWorkloadStatus(view, record, control, targets);
    const gate = toGateStatus(record, control, this.options.gates?.find(record.uid));
    if (status.rollout !== undefined && gate !== undefined) status.rollout.gate = gate;
    return status;
  }

  private presentVersions(record: WorkloadRecord): VersionInfo[] {
    const view = this.state.view();
    const active = view.control(record.uid)?.value.activeVersion || record.version;
    return view
      .versions(record.uid)
      .map((version, index, kept) => toVersionInfo(version, kept[index - 1], active));
  }

  /** Builds the API message of a replica. */
  presentReplica(replica: ReplicaRecord): ReplicaStatus {
    const node = this.state.view().node(replica.nodeId)?.value;
    return create(ReplicaStatusSchema, {
      id: replica.id,
      slot: replica.slot,
      version: replica.version,
      phase: toShownPhase(replica),
      ready: replica.ready && replica.desiredRunning,
      reason: toShownReason(replica),
      nodeId: replica.nodeId,
      zone: node === undefined ? '' : getZone(node),
      containerId: replica.containerId,
      restarts: toShownRestarts(replica),
      failedStarts: replica.failedStarts ?? 0,
      endpoints: replica.endpoints,
      stale: replica.nodeId !== '' && !this.nodes.isAlive(replica.nodeId),
      leaving: !replica.desiredRunning && isLive(replica),
      ...definedFields({ createdAt: replica.createdAt }),
      ...(replica.readySince === undefined || !replica.ready
        ? {}
        : { readySince: replica.readySince }),
      ...definedFields({ lastExitCode: replica.lastExitCode }),
      lastEndReason: replica.lastEndReason,
      lastLines: replica.lastLines,
      ...definedFields({ imagePull: replica.imagePull }),
      mayStillRun: isTombstone(replica),
      ...definedFields({ nextStartAt: toShownNextStart(replica), container: replica.container }),
    });
  }
}

/** @param previous - The kept version before; undefined for the oldest one. */
function toVersionInfo(
  { version, template, createdAt, sameAs, cause }: VersionRecord,
  previous: VersionRecord | undefined,
  active: number,
): VersionInfo {
  return create(VersionInfoSchema, {
    version,
    sameAs,
    cause,
    active: version === active,
    summary: template === undefined ? '' : summarizeTemplate(template),
    changes: describeTemplateChanges(previous?.template, template),
    ...definedFields({ createdAt }),
  });
}
