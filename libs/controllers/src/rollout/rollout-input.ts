import { create } from '@bufbuild/protobuf';
import {
  Rollout_Strategy as Strategy,
  RolloutStatus_Phase as RolloutPhase,
  WorkloadSpecSchema,
  type WorkloadSpec,
} from '@cloudless/api';
import type { ControlRecord, ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import { definedFields, toReplicaId } from '@cloudless/base';
import { toCanonicalVersion, isLive, type ClusterView } from '@cloudless/cluster-state';
import {
  resolveLimits,
  stopsFirst,
  type RolloutLimits,
  type RolloutObserved,
  type RolloutReplica,
} from '@cloudless/rollout';
import { getSpecWithDefaults } from '../common/spec-defaults.js';
import { toMs } from '../common/duration.js';
import { isFinishedOfActiveVersion } from '../replica/finished.js';
import {
  findGlobalTargets,
  type GlobalTargets,
  type GlobalTargetSources,
} from './global-targets.js';
import type { ObservationCache } from './observation-cache.js';
import { ReplicaObserver, type ReplicaSources } from './replica-observer.js';

/** The input of the rollout planner, and the time until time alone changes it. */
export interface RolloutInput {
  readonly observed: RolloutObserved;
  /**
   * Milliseconds until the next ready replica becomes available, or the eviction of a replica
   * changes by time alone; undefined when neither is pending.
   */
  readonly recheckInMs: number | undefined;
}

export interface RolloutInputSources extends GlobalTargetSources, ReplicaSources {
  readonly view: Pick<ClusterView, 'node' | 'version' | 'control'>;
  /** Keeps observations between passes over the same workload. Default: none are kept. */
  readonly observations?: ObservationCache;
}

const NO_SPEC = create(WorkloadSpecSchema);

/** Resolves the rollout limits of a spec for a wanted number of replicas. */
export function resolveSpecLimits(
  spec: { readonly rollout?: WorkloadSpec['rollout'] },
  desired: number,
): RolloutLimits {
  const { rollout } = spec;
  return resolveLimits({
    desired,
    ...definedFields({
      maxSurge: rollout?.maxSurge,
      maxUnavailable: rollout?.maxUnavailable,
      minAvailable: rollout?.minAvailable,
    }),
  });
}

/**
 * Returns true when a replica that moves to another node ends before its replacement is created,
 * while all replicas of the workload are available.
 */
export function movesStopFirst(spec: WorkloadSpec): boolean {
  const { rollout, replicas } = getSpecWithDefaults(spec);
  if (rollout?.strategy === Strategy.BLUE_GREEN) return false;
  const limits = resolveSpecLimits({ rollout }, replicas ?? 1);
  return stopsFirst(rollout?.strategy === Strategy.RECREATE ? { ...limits, maxSurge: 0 } : limits);
}

/**
 * Converts the records of a workload to the input of the rollout planner.
 * @param replicas - In ascending order of their sequence numbers, if observations are kept.
 * @param desired - Number of wanted replicas; 0 while the workload is being deleted. Ignored in
 *   mode GLOBAL unless the workload is being deleted: there, the number of targets counts.
 */
export function toRolloutInput(
  sources: RolloutInputSources,
  workload: WorkloadRecord,
  replicas: readonly ReplicaRecord[],
  desired: number,
): RolloutInput {
  const spec = getSpecWithDefaults(workload.spec ?? NO_SPEC);
  const observer = new ReplicaObserver(sources, workload.uid, {
    minReadyMs: toMs(spec.rollout?.minReadyDuration),
    nowMs: sources.clock.wallTime(),
  });
  const version = toCanonicalVersion(sources.view, workload.uid, workload.version);
  const targets =
    workload.deletionRequestedAt === undefined
      ? findGlobalTargets(sources, workload, replicas)
      : undefined;
  const live = replicas.every(isLive) ? replicas : replicas.filter(isLive);
  const observations = observer.observeAll(live, sources.observations);
  const finished = findFinishedOfActiveVersion(sources.view, workload, replicas);
  const rolloutReplicas = finished.length === 0 ? observations : [...observations, ...finished];
  const observed: RolloutObserved =
    targets === undefined
      ? { ...resolveSpecLimits(spec, desired), version, replicas: rolloutReplicas }
      : {
          ...resolveGlobalLimits(spec, targets, rolloutReplicas),
          version,
          ...withoutPinned(targets, rolloutReplicas),
        };
  return { observed, recheckInMs: observer.recheckInMs };
}

/**
 * Returns the finished replicas of the active version as available replicas, when the rollout of
 * another version keeps replicas of the active version. A rolling update without canary steps
 * replaces all of them, so the result is empty for it.
 */
function findFinishedOfActiveVersion(
  view: RolloutInputSources['view'],
  workload: WorkloadRecord,
  replicas: readonly ReplicaRecord[],
): readonly RolloutReplica[] {
  const control = view.control(workload.uid)?.value;
  const { strategy, steps } = workload.spec?.rollout ?? {};
  const keepsActiveVersion =
    strategy === Strategy.BLUE_GREEN ||
    (steps !== undefined && steps.length > 0) ||
    control?.pausedVersion === workload.version ||
    staysFailed(control, workload.version);
  if (control === undefined || !keepsActiveVersion || workload.deletionRequestedAt !== undefined)
    return [];
  return replicas
    .filter((replica) => isFinishedOfActiveVersion(view, workload, control.activeVersion, replica))
    .map((replica): RolloutReplica => ({
      id: toReplicaId(replica.id),
      version: toCanonicalVersion(view, workload.uid, replica.version),
      available: true,
      desired: 'running',
      lost: false,
      draining: false,
      createdSequence: Number(replica.sequence),
      nodeId: replica.nodeId,
    }));
}

/**
 * Returns true when the rollout of this version has failed. A retry or a new version, which the
 * next decision of the planner applies, ends the failure and with it the pause of the update.
 */
function staysFailed(control: ControlRecord | undefined, version: number): boolean {
  return (
    control?.rolloutPhase === RolloutPhase.FAILED &&
    control.rollout?.version === version &&
    !control.rollout.retry
  );
}

/**
 * Resolves the limits of a GLOBAL workload for its schedulable targets. `min_available` is about
 * all replicas, so it is reduced by the available pinned replicas, which are no input of the
 * planner. It exceeds the wanted count when pinned replicas are not available: then no other
 * replica may stop.
 */
function resolveGlobalLimits(
  spec: WorkloadSpec,
  targets: GlobalTargets,
  replicas: readonly RolloutReplica[],
): RolloutLimits {
  const limits = resolveSpecLimits(spec, targets.nodeIds.length - targets.ended.length);
  const want = targets.schedulable.length;
  const availablePinned = replicas.filter(
    ({ id, available }) => available && targets.pinned.has(id),
  ).length;
  return {
    ...limits,
    want,
    minAvailable: Math.max(0, limits.minAvailable - availablePinned),
  };
}

function withoutPinned(
  { schedulable, pinned }: GlobalTargets,
  replicas: readonly RolloutReplica[],
): Pick<RolloutObserved, 'globalTargets' | 'pinnedNodes' | 'replicas'> {
  const pinnedNodes = replicas.flatMap(({ id, nodeId = '' }) => (pinned.has(id) ? [nodeId] : []));
  return {
    globalTargets: schedulable,
    ...(pinnedNodes.length === 0 ? {} : { pinnedNodes: pinnedNodes.sort() }),
    replicas: replicas.filter(({ id }) => !pinned.has(id)),
  };
}
