import { create } from '@bufbuild/protobuf';
import {
  Rollout_Strategy as Strategy,
  RolloutStatus_Phase as RolloutPhase,
  WorkloadSpecSchema,
  withDefaults,
  type WorkloadSpec,
} from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import { toReplicaId } from '@cloudless/base';
import { canonicalVersion, isLive, type ClusterView } from '@cloudless/cluster-state';
import {
  resolveLimits,
  type RolloutLimits,
  type RolloutObserved,
  type RolloutReplica,
} from '@cloudless/rollout';
import { movingOf } from './moving.js';
import type { NodeDirectory } from './node-directory.js';
import type { Readiness } from './readiness.js';
import { msOf } from './scheduler-input.js';
import { seatsOf, type Seats, type SeatSources } from './seats.js';
import { isFormerFinal, WAITS_FOR_A_NODE } from './workload-pass.js';

/** The input of the rollout planner, and when it changes by time alone. */
export interface RolloutInput {
  readonly observed: RolloutObserved;
  /**
   * Milliseconds until the next ready replica becomes available, or a replica has to leave its
   * node, by time alone; undefined when neither is pending.
   */
  readonly nextFreshMs: number | undefined;
}

export interface RolloutSources extends SeatSources {
  readonly view: Pick<ClusterView, 'node' | 'version' | 'control'>;
  readonly nodes: Pick<NodeDirectory, 'isAlive'>;
  readonly readiness: Pick<Readiness, 'readyForMs'>;
}

/** The rollout limits of a spec for a wanted number of replicas. */
export function limitsOf(spec: WorkloadSpec, desired: number): RolloutLimits {
  const { rollout } = spec;
  return resolveLimits({
    desired,
    ...(rollout?.maxSurge === undefined ? {} : { maxSurge: rollout.maxSurge }),
    ...(rollout?.maxUnavailable === undefined ? {} : { maxUnavailable: rollout.maxUnavailable }),
    ...(rollout?.minAvailable === undefined ? {} : { minAvailable: rollout.minAvailable }),
  });
}

/**
 * @param desired - Number of wanted replicas; 0 while the workload is being deleted. Ignored in
 *   mode GLOBAL, where the number of targets counts.
 */
export function toRolloutInput(
  sources: RolloutSources,
  workload: WorkloadRecord,
  replicas: readonly ReplicaRecord[],
  desired: number,
): RolloutInput {
  const spec = withDefaults(workload.spec ?? create(WorkloadSpecSchema));
  const minReadyMs = msOf(spec.rollout?.minReadyDuration);
  const nowMs = sources.clock.wallTime();
  let nextFreshMs: number | undefined;
  const toRolloutReplica = (replica: ReplicaRecord): RolloutReplica => {
    const readyForMs = sources.readiness.readyForMs(replica);
    if (readyForMs !== undefined && readyForMs < minReadyMs) {
      nextFreshMs = Math.min(nextFreshMs ?? Number.POSITIVE_INFINITY, minReadyMs - readyForMs);
    }
    const moving = movingOf(sources.view, replica, nowMs);
    if (moving.nextMs !== undefined)
      nextFreshMs = Math.min(nextFreshMs ?? Number.POSITIVE_INFINITY, moving.nextMs);
    return {
      id: toReplicaId(replica.id),
      version: canonicalVersion(sources.view, workload.uid, replica.version),
      // A stopping replica counts against the batch while it still serves.
      ready: replica.desiredRunning
        ? readyForMs !== undefined && readyForMs >= minReadyMs
        : replica.ready,
      desired: replica.desiredRunning ? 'running' : 'stopped',
      lost: replica.lost,
      draining: moving.draining,
      forced: moving.forced,
      // Ready for less than min_ready_duration, or on a silent node: the replica may serve, so it
      // must not be stopped like an unready one.
      unproven:
        readyForMs !== undefined ||
        (replica.nodeId !== '' && !sources.nodes.isAlive(replica.nodeId)),
      createdSequence: Number(replica.sequence),
      nodeId: replica.nodeId === '' ? replica.onlyNodeId : replica.nodeId,
      ...(isRefused(replica) ? { unplaced: replica.reason } : {}),
    };
  };
  const version = canonicalVersion(sources.view, workload.uid, workload.version);
  const seats =
    workload.deletionRequestedAt === undefined ? seatsOf(sources, workload, replicas) : undefined;
  const seen = [
    ...replicas.filter(isLive).map(toRolloutReplica),
    ...formerEnded(sources.view, workload, replicas),
  ];
  const observed: RolloutObserved =
    seats === undefined
      ? { ...limitsOf(spec, desired), version, replicas: seen }
      : { ...limitsOfSeats(spec, seats, seen), version, ...withoutFrozen(seats, seen) };
  return { observed, nextFreshMs };
}

/** Tells whether the placer has tried to place a replica and found no node. */
function isRefused({ nodeId, reason }: ReplicaRecord): boolean {
  return nodeId === '' && reason !== '' && reason !== WAITS_FOR_A_NODE;
}

/**
 * Finished replicas of the active version, where the rollout of another version keeps replicas of
 * the active one: they count as available replicas. A plain update replaces them all, so it gets
 * none.
 */
function formerEnded(
  view: RolloutSources['view'],
  workload: WorkloadRecord,
  replicas: readonly ReplicaRecord[],
): readonly RolloutReplica[] {
  const control = view.control(workload.uid)?.value;
  const { strategy, steps } = workload.spec?.rollout ?? {};
  const keeps =
    strategy === Strategy.BLUE_GREEN ||
    (steps !== undefined && steps.length > 0) ||
    control?.pausedVersion === workload.version ||
    control?.rolloutPhase === RolloutPhase.FAILED;
  if (control === undefined || !keeps || workload.deletionRequestedAt !== undefined) return [];
  return replicas
    .filter((replica) => isFormerFinal(view, workload, control.activeVersion, replica))
    .map((replica): RolloutReplica => ({
      id: toReplicaId(replica.id),
      version: canonicalVersion(view, workload.uid, replica.version),
      ready: true,
      desired: 'running',
      lost: false,
      draining: false,
      createdSequence: Number(replica.sequence),
      nodeId: replica.nodeId,
    }));
}

/**
 * The limits of a GLOBAL workload for its schedulable targets. `min_available` is about all
 * replicas, so available pinned replicas, which the planner does not see, reduce it.
 */
function limitsOfSeats(
  spec: WorkloadSpec,
  seats: Seats,
  seen: readonly RolloutReplica[],
): RolloutLimits {
  const limits = limitsOf(spec, seats.nodeIds.length - seats.ended.length);
  const want = seats.open.length;
  const serving = seen.filter(({ id, ready }) => ready && seats.frozen.has(id)).length;
  return {
    ...limits,
    want,
    minAvailable: Math.min(want, Math.max(0, limits.minAvailable - serving)),
  };
}

function withoutFrozen(
  { open, frozen }: Seats,
  seen: readonly RolloutReplica[],
): Pick<RolloutObserved, 'seats' | 'replicas'> {
  return { seats: open, replicas: seen.filter(({ id }) => !frozen.has(id)) };
}
