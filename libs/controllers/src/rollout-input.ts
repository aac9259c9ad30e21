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

/** What the planner is given, and when its answer may change by time alone. */
export interface RolloutInput {
  readonly observed: RolloutObserved;
  /**
   * Milliseconds until the next ready replica has been ready for min_ready_duration, or one has to
   * leave its node by time alone; undefined when none is waited for.
   */
  readonly nextFreshMs: number | undefined;
}

/** Where the planner's facts come from. */
export interface RolloutSources extends SeatSources {
  readonly view: Pick<ClusterView, 'node' | 'version' | 'control'>;
  readonly nodes: Pick<NodeDirectory, 'isAlive'>;
  readonly readiness: Pick<Readiness, 'readyForMs'>;
}

/** The limits of a workload for a count of wanted replicas. */
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
 * @param desired - Replicas that are wanted now: 0 while the workload is being deleted. A GLOBAL
 * one has its seats instead.
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
      // One that leaves counts against the batch as long as it still serves.
      ready: replica.desiredRunning
        ? readyForMs !== undefined && readyForMs >= minReadyMs
        : replica.ready,
      desired: replica.desiredRunning ? 'running' : 'stopped',
      lost: replica.lost,
      draining: moving.draining,
      forced: moving.forced,
      // Ready for a moment only, or on a node that is silent: it serves, so it is not free to go.
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

/** A placement has looked at it and found no node. */
function isRefused({ nodeId, reason }: ReplicaRecord): boolean {
  return nodeId === '' && reason !== '' && reason !== WAITS_FOR_A_NODE;
}

/**
 * Replicas of the active version that have run to their end, where the rollout of another one keeps
 * replicas of that version: they have their places in it as ready ones have. A plain update runs
 * the new version for all, and need not know of them.
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
    .map((replica) => ({
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
 * The floor is for all that run; what the planner does not see of them, and serves, need not be
 * kept by it.
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

function withoutFrozen({ open, frozen }: Seats, seen: readonly RolloutReplica[]) {
  return { seats: open, replicas: seen.filter(({ id }) => !frozen.has(id)) };
}
