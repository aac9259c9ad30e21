import { create } from '@bufbuild/protobuf';
import { definedFields } from '@cloudless/base';
import {
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
  toCanonicalVersion,
  type ClusterView,
  type SequenceEnds,
  type VersionCounts,
} from '@cloudless/cluster-state';
import { toPendingStatusChange, isUnfinished } from '../rollout/pending-user-action.js';
import { resolveSpecLimits } from '../rollout/rollout-input.js';
import type { GlobalTargets } from '../rollout/global-targets.js';
import { WAITS_FOR_NODE } from '../placement/wait-reason.js';

/**
 * Builds the status of a workload without replicas and versions. Reads the numbers of the replicas,
 * and at most two replicas, however many the workload has.
 * @param targets - Undefined for mode REPLICATED.
 */
export function toWorkloadStatus(
  view: ClusterView,
  record: WorkloadRecord,
  control: ControlRecord | undefined,
  targets: GlobalTargets | undefined,
): WorkloadStatus {
  const spec = getSpecFacts(record.spec ?? create(WorkloadSpecSchema));
  const desired = targets?.nodeIds.length ?? spec.replicas;
  const numbers = addUpVersions(view, record);
  const { live, ready, updated } = numbers;
  const failed = spec.restartPolicy === RestartMode.NEVER ? numbers.firstFailed : undefined;
  const facts: StatusFacts = { ...numbers, view, record, control, desired, failed, targets };
  return create(WorkloadStatusSchema, {
    phase: toPhase(facts),
    observedGeneration: control?.observedGeneration ?? 0n,
    version: record.version,
    desiredReplicas: desired,
    totalReplicas: live,
    readyReplicas: ready,
    updatedReplicas: updated,
    updatedReadyReplicas: numbers.updatedReady,
    succeededReplicas: numbers.succeeded,
    reason: explainStatus(facts),
    minAvailable: resolveSpecLimits(spec, desired).minAvailable,
    activeVersion: control?.activeVersion ?? 0,
    rollout: toRolloutStatus(record, control, { updated, ready, total: live }),
  });
}

/** Numbers of the replicas of all versions, and sequence numbers of replicas that explain them. */
interface Numbers {
  /** Replicas that have not ended and are not lost. They may have no node yet. */
  readonly live: number;
  /** Live replicas that are not ordered to stop. */
  readonly staying: number;
  /** Ready replicas that serve: under BLUE_GREEN only those of the active version. */
  readonly ready: number;
  /** Staying replicas with the wanted template. */
  readonly updated: number;
  /** Ready replicas among `updated`. */
  readonly updatedReady: number;
  /** Staying replicas without a node. */
  readonly unplaced: number;
  /** Replicas with the wanted template that ran to completion. */
  readonly succeeded: number;
  /** The oldest failed replica with the wanted template that is not ordered to stop. */
  readonly firstFailed: number | undefined;
  /** The newest failed replica that is not lost. */
  readonly lastFailed: number | undefined;
  /** The oldest replica without a node that has a reason. */
  readonly firstUnplaced: number | undefined;
  /** The oldest replica on a node that is not ready and has a reason. */
  readonly firstUnready: number | undefined;
  /** Replicas on a node that wait for their next start. */
  readonly inBackoff: number;
  /** The oldest of these. */
  readonly firstInBackoff: number | undefined;
}

/**
 * Adds up the numbers of all versions. Versions with equal templates, such as version 1 and the
 * version of an undo to version 1, count as the same.
 */
function addUpVersions(view: ClusterView, { uid, version: wanted }: WorkloadRecord): Numbers {
  const wantedTemplate = toCanonicalVersion(view, uid, wanted);
  const serves = createServingFilter(view, uid);
  const all = [...view.replicaCounts(uid).byVersion];
  const sum = (versions: typeof all, toNumber: (counts: VersionCounts) => number): number =>
    versions.reduce((total, [, counts]) => total + toNumber(counts), 0);
  const updated = all.filter(
    ([version]) => toCanonicalVersion(view, uid, version) === wantedTemplate,
  );
  const serving = all.filter(([version]) => serves({ version }));
  return {
    live: sum(all, ({ live }) => live),
    staying: sum(all, ({ staying }) => staying),
    ready: sum(serving, ({ ready }) => ready),
    updated: sum(updated, ({ staying }) => staying),
    updatedReady: sum(updated, ({ ready }) => ready),
    unplaced: sum(all, ({ unplaced }) => unplaced),
    succeeded: sum(updated, ({ succeeded }) => succeeded),
    firstFailed: findOldest(updated.map(([, { failedWanted }]) => failedWanted)),
    lastFailed: findNewest(all.map(([, { failedPresent }]) => failedPresent)),
    firstUnplaced: findOldest(all.map(([, { explainedUnplaced }]) => explainedUnplaced)),
    firstUnready: findOldest(all.map(([, { explainedUnready }]) => explainedUnready)),
    inBackoff: sum(all, ({ inBackoffCount }) => inBackoffCount),
    firstInBackoff: findOldest(all.map(([, { inBackoff }]) => inBackoff)),
  };
}

function findOldest(sets: readonly SequenceEnds[]): number | undefined {
  const firsts = sets.flatMap(({ first }) => first ?? []);
  return firsts.length === 0 ? undefined : Math.min(...firsts);
}

function findNewest(sets: readonly SequenceEnds[]): number | undefined {
  const lasts = sets.flatMap(({ last }) => last ?? []);
  return lasts.length === 0 ? undefined : Math.max(...lasts);
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

/** The numbers and records that phase and reason of a workload follow from. */
interface StatusFacts extends Numbers {
  readonly view: ClusterView;
  readonly record: WorkloadRecord;
  readonly control: ControlRecord | undefined;
  readonly desired: number;
  /** The oldest replica that failed for good under restart policy NEVER. */
  readonly failed: number | undefined;
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
  unplaced,
  succeeded,
  failed,
}: StatusFacts): Phase {
  if (record.deletionRequestedAt !== undefined) return Phase.TERMINATING;
  if (succeeded > 0 && succeeded >= desired && live === 0) return Phase.SUCCEEDED;
  if (failed !== undefined) return Phase.FAILED;
  if (unplaced > 0) return unplaced === staying ? Phase.PENDING : Phase.SCHEDULING;
  if (desired > 0 && staying === 0 && succeeded === 0) return Phase.PENDING;
  const settled = control?.observedGeneration === record.generation;
  const isExact = live === staying && staying + succeeded === desired && updated === staying;
  return settled && isExact ? Phase.RUNNING : Phase.UPDATING;
}

/**
 * Explains why the workload is not in its wanted state, by the most severe cause. Empty when there
 * is nothing to explain.
 */
function explainStatus(facts: StatusFacts): string {
  const { view, desired, unplaced, ready, succeeded, failed, targets } = facts;
  const find = (sequence: number | undefined): ReplicaRecord | undefined =>
    sequence === undefined ? undefined : findReplica(view, facts.record.uid, sequence);
  if (unplaced > 0) {
    const why = find(facts.firstUnplaced)?.reason ?? WAITS_FOR_NODE;
    return `${unplaced} of ${desired} replicas without a node: ${why}`;
  }
  const failedReplica = find(failed);
  if (failedReplica !== undefined)
    return `replica ${failedReplica.id} failed: ${failedReplica.reason}`;
  if (ready + succeeded >= desired)
    return targets === undefined ? '' : explainGlobalTargets(view, targets);
  const backoff = find(facts.firstInBackoff);
  if (backoff !== undefined) return explainBackoff(backoff, facts.inBackoff, desired);
  const unready = find(facts.firstUnready);
  if (unready !== undefined) return `replica ${unready.id}: ${unready.reason}`;
  const lastFailedReplica = find(facts.lastFailed);
  if (lastFailedReplica !== undefined)
    return `replica ${lastFailedReplica.id} failed: ${lastFailedReplica.reason}`;
  return facts.control?.rolloutReason ?? '';
}

/** Returns the replica of a workload with a sequence number. */
function findReplica(view: ClusterView, uid: string, sequence: number): ReplicaRecord | undefined {
  for (const { value } of view.replicasInOrder(uid, sequence - 1)) return value;
  return undefined;
}

/** @param first - The oldest of the `count` replicas in back-off. */
function explainBackoff(first: ReplicaRecord, count: number, desired: number): string {
  const cause = getBackoffCause(first);
  if (count === 1) return `replica ${first.id} waits for its next start${toSuffix(cause)}`;
  const example = cause === '' ? '' : `replica ${first.id}: ${cause}`;
  return `${count} of ${desired} replicas wait for their next start${toSuffix(example)}`;
}

function toSuffix(cause: string): string {
  return cause === '' ? '' : ` (${cause})`;
}

/** Explains what is unusual although every target node has its replica; empty when nothing is. */
function explainGlobalTargets(view: ClusterView, { nodeIds, pinned }: GlobalTargets): string {
  if (nodeIds.length === 0) return 'no node fits';
  const nodes = [...pinned].flatMap((id) => view.replica(id)?.value.nodeId ?? []);
  if (nodes.length === 0) return '';
  const [subject, where] =
    nodes.length === 1
      ? ['1 replica stays', 'its node takes']
      : [`${nodes.length} replicas stay`, 'their nodes take'];
  return `${subject} at another version as ${where} nothing new: ${nodes.sort().join(', ')}`;
}
