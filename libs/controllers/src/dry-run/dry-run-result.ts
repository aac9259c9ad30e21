import type { PlanOutcome } from '@cloudless/api';

/** One predicted step. */
export interface DryRunStep {
  /** Text for users, for example `create 1 of version 2`. */
  readonly description: string;
  /** Number of available replicas that serve after the step. */
  readonly ready: number;
  /** Number of live replicas after the step. */
  readonly live: number;
  /** True for the last step of a prediction when that step cannot happen by itself. */
  readonly blocked?: boolean;
}

/** Prediction for one workload, up to the point where nothing more happens by itself. */
export interface DryRunResult {
  readonly steps: readonly DryRunStep[];
  /** Number of further creations and stops that the prediction counts, and does not simulate. */
  readonly omittedSteps: number;
  readonly placements: readonly { readonly nodeId: string; readonly score: number }[];
  /** Number of replicas that no node fits. The reason is in {@link unplacedReason}. */
  readonly unplaced: number;
  /** How many of {@link unplaced} waited already: no node fitted them before the change. */
  readonly waitedBefore: number;
  readonly unplacedReason: string;
  /**
   * Finds the smallest change after which a node fits a replica of {@link unplaced}; empty when no
   * such change is known.
   * Consumes budget of the plan: call it only for a result that is shown.
   */
  readonly suggestChange: () => string;
  /** Replicas of other workloads that would be preempted, as one sentence; empty for none. */
  readonly preempts: string;
  /** Number of replicas in {@link preempts}. */
  readonly preempted: number;
  /** Number of replicas in {@link preempts}, by the uid of their workload. */
  readonly victims: ReadonlyMap<string, number>;
  /** Number of new replicas whose placement was not predicted. */
  readonly notPredicted: number;
  /** The limits that are the reason, as one sentence with {@link notPredicted}; else empty. */
  readonly notPredictedReason: string;
  /** Lowest {@link DryRunStep.ready} and highest {@link DryRunStep.live} of all steps. */
  readonly lowestReady: number;
  readonly highestLive: number;
  /** The resolved `min_available` before the first step. */
  readonly minAvailable: number;
  /** Number of available replicas that serve before the first step. */
  readonly readyBefore: number;
  /** Reason why the workload does not reach its spec by itself; undefined when it does. */
  readonly stuckReason: string | undefined;
  /**
   * Reason why replicas that have to leave their nodes, and end before their replacements start,
   * stay until another replica is ready; undefined when the first of them may stop at once. The
   * steps assume that all replicas become ready.
   */
  readonly moveWaitReason: string | undefined;
  /** The state in which the workload stays. */
  readonly outcome: PlanOutcome;
}
