import { create } from '@bufbuild/protobuf';
import {
  ReplicaStatusSchema,
  ReplicaStatus_Phase as ReplicaPhase,
  RestartPolicy_Policy as RestartMode,
  RolloutStatusSchema,
  RolloutStatus_Phase as RolloutPhase,
  VersionInfoSchema,
  WorkloadSchema,
  WorkloadSpecSchema,
  WorkloadStatusSchema,
  WorkloadStatus_Phase as Phase,
  withDefaults,
  type ReplicaStatus,
  type VersionInfo,
  type Workload,
  type WorkloadSpec,
} from '@cloudless/api';
import type { ControlRecord, ReplicaRecord, VersionRecord, WorkloadRecord } from '@cloudless/api/store';
import { isLive, type ClusterState } from '@cloudless/cluster-state';
import { effectiveNode } from './effective-node.js';
import type { NodeDirectory } from './node-directory.js';
import { limitsOf } from './rollout-input.js';

/** Makes what the API shows of workloads and replicas out of records and liveness. */
export class WorkloadReader {
  constructor(
    private readonly state: ClusterState,
    private readonly nodes: NodeDirectory,
  ) {}

  /** The workload as users see it. @param full - With its replicas and versions. */
  read(record: WorkloadRecord, full: boolean): Workload {
    const view = this.state.view();
    const replicas = [...view.replicasOf(record.uid)].map(({ value }) => value).sort(byAge);
    const control = view.control(record.uid)?.value;
    const versions = full ? view.versions(record.uid).map((version) => toVersionInfo(version, record.version)) : [];
    return create(WorkloadSchema, {
      namespace: record.namespace,
      name: record.name,
      uid: record.uid,
      spec: record.spec ?? create(WorkloadSpecSchema),
      generation: record.generation,
      ...(record.createdAt === undefined ? {} : { createdAt: record.createdAt }),
      ...(record.deletionRequestedAt === undefined ? {} : { deletionRequestedAt: record.deletionRequestedAt }),
      status: {
        ...statusOf(record, control, replicas),
        replicas: full ? replicas.map((replica) => this.readReplica(replica)) : [],
        versions,
      },
    });
  }

  /** One replica as users see it. */
  readReplica(replica: ReplicaRecord): ReplicaStatus {
    const node = this.state.view().node(replica.nodeId)?.value;
    return create(ReplicaStatusSchema, {
      id: replica.id,
      slot: replica.slot,
      version: replica.version,
      phase: shownPhase(replica),
      ready: replica.ready && replica.desiredRunning,
      reason: replica.reason,
      nodeId: replica.nodeId,
      zone: node === undefined ? '' : effectiveNode(node).zone,
      containerId: replica.containerId,
      restarts: replica.restarts,
      endpoints: replica.endpoints,
      stale: replica.nodeId !== '' && !this.nodes.isAlive(replica.nodeId),
      leaving: !replica.desiredRunning && isLive(replica),
      ...(replica.createdAt === undefined ? {} : { createdAt: replica.createdAt }),
      ...(replica.readySince === undefined || !replica.ready ? {} : { readySince: replica.readySince }),
      ...(replica.lastExitCode === undefined ? {} : { lastExitCode: replica.lastExitCode }),
      lastEndReason: replica.lastEndReason,
    });
  }
}

/** A stop that was ordered shows at once, also before the agent says so. */
function shownPhase({ phase, desiredRunning }: ReplicaRecord): ReplicaPhase {
  return isLive({ phase }) && !desiredRunning ? ReplicaPhase.STOPPING : phase;
}

const byAge = (a: ReplicaRecord, b: ReplicaRecord): number => Number(a.sequence - b.sequence);

function statusOf(record: WorkloadRecord, control: ControlRecord | undefined, replicas: readonly ReplicaRecord[]) {
  const spec = withDefaults(record.spec ?? create(WorkloadSpecSchema));
  const desired = spec.replicas ?? 0;
  const live = replicas.filter((replica) => isLive(replica) && !replica.lost);
  const serving = live.filter((replica) => replica.desiredRunning);
  const ready = serving.filter((replica) => replica.ready).length;
  const updated = serving.filter((replica) => replica.version === record.version).length;
  const ended = replicas.filter((replica) => replica.version === record.version && replica.desiredRunning);
  const succeeded = ended.filter(({ phase }) => phase === ReplicaPhase.SUCCEEDED).length;
  const failed = ended.filter(({ phase }) => phase === ReplicaPhase.FAILED && spec.restart?.policy === RestartMode.NEVER);
  const facts = { record, control, desired, live, serving, ready, updated, succeeded, failed, replicas };
  return create(WorkloadStatusSchema, {
    phase: phaseOf(facts),
    observedGeneration: control?.observedGeneration ?? 0n,
    version: record.version,
    desiredReplicas: desired,
    totalReplicas: live.length,
    readyReplicas: ready,
    updatedReplicas: updated,
    succeededReplicas: succeeded,
    reason: reasonOf(facts),
    minAvailable: limitsOf(spec, desired).minAvailable,
    rollout: create(RolloutStatusSchema, {
      phase: control?.rolloutPhase ?? RolloutPhase.STARTING,
      updated,
      ready,
      total: live.length,
      reason: control?.rolloutReason ?? '',
    }),
  });
}

interface Facts {
  readonly record: WorkloadRecord;
  readonly control: ControlRecord | undefined;
  readonly desired: number;
  readonly live: readonly ReplicaRecord[];
  readonly serving: readonly ReplicaRecord[];
  readonly ready: number;
  readonly updated: number;
  readonly succeeded: number;
  readonly failed: readonly ReplicaRecord[];
  readonly replicas: readonly ReplicaRecord[];
}

function phaseOf({ record, control, desired, live, serving, updated, succeeded, failed }: Facts): Phase {
  if (record.deletionRequestedAt !== undefined) return Phase.TERMINATING;
  if (succeeded > 0 && succeeded >= desired && live.length === 0) return Phase.SUCCEEDED;
  if (failed.length > 0) return Phase.FAILED;
  const unplaced = serving.filter(({ nodeId }) => nodeId === '').length;
  if (unplaced > 0) return unplaced === serving.length ? Phase.PENDING : Phase.SCHEDULING;
  if (desired > 0 && serving.length === 0 && succeeded === 0) return Phase.PENDING;
  const settled = control?.observedGeneration === record.generation;
  const exact = live.length === serving.length && serving.length + succeeded === desired && updated === serving.length;
  return settled && exact ? Phase.RUNNING : Phase.UPDATING;
}

/** Why it is not where it should be; what blocks most comes first. */
function reasonOf({ serving, ready, desired, succeeded, failed, replicas, control }: Facts): string {
  const unplaced = serving.filter(({ nodeId }) => nodeId === '');
  if (unplaced.length > 0) {
    const why = unplaced.find(({ reason }) => reason !== '')?.reason ?? 'waits for a node';
    return `${unplaced.length} of ${desired} replicas without a node: ${why}`;
  }
  const broken = failed[0];
  if (broken !== undefined) return `replica ${broken.id} failed: ${broken.reason}`;
  if (ready + succeeded >= desired) return '';
  const unready = serving.find((replica) => !replica.ready && replica.reason !== '');
  if (unready !== undefined) return `${ready} of ${desired} ready: replica ${unready.id}: ${unready.reason}`;
  const retired = replicas.findLast(({ phase, lost }) => phase === ReplicaPhase.FAILED && !lost);
  if (retired !== undefined) return `${ready} of ${desired} ready: replica ${retired.id} failed: ${retired.reason}`;
  return control?.rolloutReason ?? '';
}

function toVersionInfo({ version, template, createdAt }: VersionRecord, active: number): VersionInfo {
  return create(VersionInfoSchema, {
    version,
    active: version === active,
    summary: template === undefined ? '' : summaryOf(template),
    ...(createdAt === undefined ? {} : { createdAt }),
  });
}

/** What a template runs, for people: its image, or its command line. */
export function summaryOf(spec: WorkloadSpec): string {
  const words = spec.image !== '' ? [spec.image] : [...spec.command, ...spec.args];
  const text = words.join(' ');
  return text.length > MAX_SUMMARY ? `${text.slice(0, MAX_SUMMARY - 1)}…` : text;
}

/** Fits into a column of a table. */
const MAX_SUMMARY = 80;
