import { create } from '@bufbuild/protobuf';
import { PlanOutcomeSchema, PlanOutcome_Kind as Kind, type PlanOutcome } from '@cloudless/api';
import {
  formatDuration,
  type RolloutObserved,
  type RolloutSettings,
  type RolloutState,
} from '@cloudless/rollout';

/** The end of a prediction. */
export interface PredictedEnd {
  readonly observed: RolloutObserved;
  readonly state: RolloutState;
  readonly settings: RolloutSettings;
  /** Number of replicas that no node fits. */
  readonly unplaced: number;
  /** Reason why the workload does not reach its spec by itself; undefined when it does. */
  readonly stuckReason: string | undefined;
  /** Number of wanted replicas that `observed` does not contain. Default: 0. */
  readonly omitted?: number;
  /** How many of {@link omitted} are assumed to become ready. Default: 0. */
  readonly assumedReady?: number;
  /** How many of {@link RolloutObserved.alsoAvailable} run the wanted version. Default: 0. */
  readonly alsoUpdated?: number;
}

/**
 * Describes the state in which a workload stays when nothing more happens by itself: `rollout stays
 * at 7 of 9 until a node fits, and fails after 10m without progress`.
 */
export function describeOutcome(end: PredictedEnd): PlanOutcome {
  const { observed, state, unplaced, stuckReason } = end;
  const { omitted = 0, assumedReady = 0, alsoUpdated = 0 } = end;
  const { version, replicas } = observed;
  const desired = observed.want + omitted;
  const ready = countServing(observed) + assumedReady;
  const updatedReplicas = replicas.filter(
    (replica) => replica.version === version && replica.available && !replica.lost,
  );
  const updated = updatedReplicas.length + alsoUpdated + assumedReady;
  const counts = { ready, updated, desired };
  if (unplaced === 0 && stuckReason === undefined)
    return create(PlanOutcomeSchema, { kind: Kind.COMPLETES, ...counts });
  const isRollout = state.phase === 'inProgress' && state.activeVersion !== 0;
  const progress = isRollout
    ? `rollout stays at ${updated} of ${desired}`
    : `${ready} of ${desired} replicas are ready`;
  return unplaced > 0
    ? create(PlanOutcomeSchema, {
        kind: Kind.WAITS_FOR_NODE,
        message: `${progress} until a node fits${isRollout ? describeDeadline(end) : ''}`,
        ...counts,
      })
    : create(PlanOutcomeSchema, {
        kind: Kind.STAYS,
        message: `${progress}: ${stuckReason ?? ''}`,
        ...counts,
      });
}

/** Describes what happens when a rollout makes no progress for too long. */
function describeDeadline({ state, settings }: PredictedEnd): string {
  const consequence =
    settings.onFailure === 'rollback' && state.rollsBackFrom === 0
      ? `rolls back to version ${state.fromVersion}`
      : 'fails';
  return `, and ${consequence} after ${formatDuration(settings.progressDeadlineMs)} without progress`;
}

/**
 * Counts the available replicas that serve.
 * @param activeVersion - Version that serves under blue/green. Default: the active version.
 */
export function countServing(observed: RolloutObserved, activeVersion?: number): number {
  let serving = observed.alsoAvailable ?? 0;
  for (const replica of observed.replicas)
    if (isServing(observed, replica, activeVersion)) serving += 1;
  return serving;
}

function isServing(
  { strategy }: RolloutObserved,
  replica: RolloutObserved['replicas'][number],
  activeVersion?: number,
): boolean {
  const servingVersion =
    activeVersion ?? (strategy?.kind === 'blueGreen' ? strategy.activeVersion : undefined);
  return (
    replica.available &&
    !replica.lost &&
    replica.desired === 'running' &&
    (servingVersion === undefined || replica.version === servingVersion)
  );
}
