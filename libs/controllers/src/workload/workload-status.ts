import { create } from '@bufbuild/protobuf';
import { definedFields } from '@cloudless/base';
import {
  ReplicaStatus_Phase as ReplicaPhase,
  RestartPolicy_Policy as RestartMode,
  RolloutStatusSchema,
  RolloutStatus_Phase as RolloutPhase,
  WorkloadSpecSchema,
  WorkloadStatusSchema,
  WorkloadStatus_Phase as Phase,
  getBackoffCause,
  withDefaults,
  type RolloutStatus,
  type WorkloadSpec,
  type WorkloadStatus,
} from '@cloudless/api';
import type { ControlRecord, ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import {
  createServingFilter,
  isLive,
  toCanonicalVersion,
  type ClusterView,
} from '@cloudless/cluster-state';
import { toPendingStatusChange, isUnfinished } from '../rollout/pending-user-action.js';
import { resolveSpecLimits } from '../rollout/rollout-input.js';
import type { GlobalTargets } from '../rollout/global-targets.js';
import { WAITS_FOR_NODE } from '../placement/wait-reason.js';

/**
 * Builds the status of a workload without replicas and versions.
 * @param replicas - All replicas of the workload, oldest first.
 * @param targets - Undefined for mode REPLICATED.
 */
export function toWorkloadStatus(
  view: ClusterView,
  record: WorkloadRecord,
  control: ControlRecord | undefined,
  replicas: readonly ReplicaRecord[],
  targets: GlobalTargets | undefined,
): WorkloadStatus {
  const spec = getSpecFacts(record.spec ?? create(WorkloadSpecSchema));
  const desired = targets?.nodeIds.length ?? spec.replicas;
  const live = replicas.filter((replica) => isLive(replica) && !replica.lost);
  const staying = live.filter((replica) => replica.desiredRunning);
  const isWanted = createVersionFilter(view, record);
  const serves = createServingFilter(view, record.uid);
  const ready = staying.filter((replica) => replica.ready && serves(replica)).length;
  const updated = staying.filter(isWanted).length;
  const wanted = replicas.filter((replica) => isWanted(replica) && replica.desiredRunning);
  const succeeded = wanted.filter(({ phase }) => phase === ReplicaPhase.SUCCEEDED).length;
  const failed = wanted.filter(
    ({ phase }) => phase === ReplicaPhase.FAILED && spec.restartPolicy === RestartMode.NEVER,
  );
  const facts: StatusFacts = {
    record,
    control,
    desired,
    live,
    staying,
    ready,
    updated,
    succeeded,
    failed,
    replicas,
    targets,
  };
  return create(WorkloadStatusSchema, {
    phase: toPhase(facts),
    observedGeneration: control?.observedGeneration ?? 0n,
    version: record.version,
    desiredReplicas: desired,
    totalReplicas: live.length,
    readyReplicas: ready,
    updatedReplicas: updated,
    succeededReplicas: succeeded,
    reason: explainStatus(facts),
    minAvailable: resolveSpecLimits(spec, desired).minAvailable,
    activeVersion: control?.activeVersion ?? 0,
    rollout: toRolloutStatus(record, control, { updated, ready, total: live.length }),
  });
}

/**
 * Returns a filter for the replicas with the wanted template. Versions with equal templates, such as
 * version 1 and the version of an undo to version 1, count as the same.
 */
function createVersionFilter(
  view: ClusterView,
  { uid, version }: WorkloadRecord,
): (replica: ReplicaRecord) => boolean {
  const wanted = toCanonicalVersion(view, uid, version);
  const results = new Map<number, boolean>();
  return (replica) => {
    const known = results.get(replica.version);
    if (known !== undefined) return known;
    const isWanted = toCanonicalVersion(view, uid, replica.version) === wanted;
    results.set(replica.version, isWanted);
    return isWanted;
  };
}

/** The fields of a spec with defaults that the status follows from. */
interface SpecFacts {
  readonly replicas: number;
  readonly restartPolicy: RestartMode | undefined;
  readonly rollout: WorkloadSpec['rollout'];
}

/** Facts of the specs in use. A stored spec does not change, and its copy with defaults is costly. */
const factsBySpec = new WeakMap<WorkloadSpec, SpecFacts>();

function getSpecFacts(spec: WorkloadSpec): SpecFacts {
  const known = factsBySpec.get(spec);
  if (known !== undefined) return known;
  const { replicas = 0, restart, rollout } = withDefaults(spec);
  const facts: SpecFacts = { replicas, restartPolicy: restart?.policy, rollout };
  factsBySpec.set(spec, facts);
  return facts;
}

/**
 * Builds the rollout status of a workload. Before the first reconciliation pass of a rollout, the
 * status contains only phase STARTING, the versions and the counts.
 */
function toRolloutStatus(
  { version, spec }: WorkloadRecord,
  control: ControlRecord | undefined,
  counts: { readonly updated: number; readonly ready: number; readonly total: number },
): RolloutStatus {
  const rollout = control?.rollout;
  const fromVersion = control?.activeVersion ?? 0;
  if (control === undefined || rollout?.version !== version)
    return create(RolloutStatusSchema, {
      phase: RolloutPhase.STARTING,
      version,
      fromVersion,
      ...counts,
    });
  const steps = spec?.rollout?.steps.length ?? 0;
  return create(RolloutStatusSchema, {
    ...counts,
    phase: control.rolloutPhase,
    reason: control.rolloutReason,
    waitsForPromotion: rollout.waitsForPromotion,
    ...toPendingStatusChange(control, rollout),
    version,
    fromVersion: rollout.fromVersion,
    // The first rollout of a workload replaces no version and has no canary steps.
    step:
      rollout.stepsDone < steps && isUnfinished(control) && rollout.fromVersion !== 0
        ? rollout.stepsDone + 1
        : 0,
    steps,
    pausedByUser: control.pausedVersion === version && isUnfinished(control),
    failedNew: rollout.failedNew,
    strategy: rollout.strategy,
    ...definedFields({
      startedAt: rollout.startedAt,
      endedAt: rollout.endedAt,
      until: rollout.until,
      failure: rollout.failure,
    }),
  });
}

/** The counts and records that phase and reason of a workload follow from. */
interface StatusFacts {
  readonly record: WorkloadRecord;
  readonly control: ControlRecord | undefined;
  readonly desired: number;
  /** Replicas that have not ended and are not lost. They may have no node yet. */
  readonly live: readonly ReplicaRecord[];
  /** Live replicas that are not ordered to stop. */
  readonly staying: readonly ReplicaRecord[];
  /** Number of ready replicas that serve: under BLUE_GREEN only those of the active version. */
  readonly ready: number;
  /** Number of staying replicas with the wanted template. */
  readonly updated: number;
  readonly succeeded: number;
  /** Replicas that failed for good under restart policy NEVER. */
  readonly failed: readonly ReplicaRecord[];
  readonly replicas: readonly ReplicaRecord[];
  /** Defined in mode GLOBAL only. */
  readonly targets: GlobalTargets | undefined;
}

function toPhase({
  record,
  control,
  desired,
  live,
  staying,
  updated,
  succeeded,
  failed,
}: StatusFacts): Phase {
  if (record.deletionRequestedAt !== undefined) return Phase.TERMINATING;
  if (succeeded > 0 && succeeded >= desired && live.length === 0) return Phase.SUCCEEDED;
  if (failed.length > 0) return Phase.FAILED;
  const unplaced = staying.filter(({ nodeId }) => nodeId === '').length;
  if (unplaced > 0) return unplaced === staying.length ? Phase.PENDING : Phase.SCHEDULING;
  if (desired > 0 && staying.length === 0 && succeeded === 0) return Phase.PENDING;
  const settled = control?.observedGeneration === record.generation;
  const isExact =
    live.length === staying.length &&
    staying.length + succeeded === desired &&
    updated === staying.length;
  return settled && isExact ? Phase.RUNNING : Phase.UPDATING;
}

/**
 * Explains why the workload is not in its wanted state, by the most severe cause. Empty when there
 * is nothing to explain.
 */
function explainStatus({
  staying,
  ready,
  desired,
  succeeded,
  failed,
  replicas,
  control,
  targets,
}: StatusFacts): string {
  const unplaced = staying.filter(({ nodeId }) => nodeId === '');
  if (unplaced.length > 0) {
    const why = unplaced.find(({ reason }) => reason !== '')?.reason ?? WAITS_FOR_NODE;
    return `${unplaced.length} of ${desired} replicas without a node: ${why}`;
  }
  const failedReplica = failed[0];
  if (failedReplica !== undefined)
    return `replica ${failedReplica.id} failed: ${failedReplica.reason}`;
  if (ready + succeeded >= desired)
    return targets === undefined ? '' : explainGlobalTargets(targets, replicas);
  const waiting = staying.filter((replica) => !replica.ready && replica.nextStartAt !== undefined);
  if (waiting.length > 0) return explainBackoff(waiting, desired);
  const unready = staying.find((replica) => !replica.ready && replica.reason !== '');
  if (unready !== undefined) return `replica ${unready.id}: ${unready.reason}`;
  const lastFailedReplica = replicas.findLast(
    ({ phase, lost }) => phase === ReplicaPhase.FAILED && !lost,
  );
  if (lastFailedReplica !== undefined)
    return `replica ${lastFailedReplica.id} failed: ${lastFailedReplica.reason}`;
  return control?.rolloutReason ?? '';
}

/** @param waiting - Replicas in back-off, at least one. */
function explainBackoff(waiting: readonly ReplicaRecord[], desired: number): string {
  const [cause = '', ...otherCauses] = new Set(waiting.map(getBackoffCause));
  const id = waiting[0]?.id ?? '';
  if (waiting.length === 1) return `replica ${id} waits for its next start${toSuffix(cause)}`;
  return `${waiting.length} of ${desired} replicas wait for their next start${toSuffix(otherCauses.length === 0 ? cause : `replica ${id}: ${cause}`)}`;
}

function toSuffix(cause: string): string {
  return cause === '' ? '' : ` (${cause})`;
}

/** Explains what is unusual although every target node has its replica; empty when nothing is. */
function explainGlobalTargets(
  { nodeIds, pinned }: GlobalTargets,
  replicas: readonly ReplicaRecord[],
): string {
  if (nodeIds.length === 0) return 'no node fits';
  const nodes = replicas.filter(({ id }) => pinned.has(id)).map(({ nodeId }) => nodeId);
  if (nodes.length === 0) return '';
  const [subject, where] =
    nodes.length === 1
      ? ['1 replica stays', 'its node takes']
      : [`${nodes.length} replicas stay`, 'their nodes take'];
  return `${subject} at another version as ${where} nothing new: ${nodes.sort().join(', ')}`;
}
