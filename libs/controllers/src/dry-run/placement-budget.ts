import { MAX_SUGGESTION_TRIALS } from '@cloudless/scheduler';

/**
 * Most node evaluations of one plan: each placement decision evaluates every node once. This many
 * evaluations take about 0.1 s of CPU.
 */
const MAX_NODE_EVALUATIONS = 20_000;

/**
 * Most new replicas of one plan beside the existing replicas: a workload may want a million.
 * Predicting this many takes less than half a second of CPU.
 */
const MAX_NEW_REPLICAS = 20_000;

/**
 * Number of existing replicas up to which a prediction simulates every replica of a workload: more
 * than a plan shows. Most replicas of a larger workload are only counted.
 */
const MAX_SIMULATED = 2_000;

/** Limits of a {@link PlacementBudget}, in node evaluations. */
export interface PlacementLimits {
  /** Most evaluations between two calls of `beginSlice`. */
  readonly slice: number;
  /** Most evaluations in all slices together. */
  readonly total: number;
  /** Most new replicas between two calls of `beginSlice`. Default: 20,000. */
  readonly newReplicas?: number;
  /** See {@link PlacementBudget.maxSimulated}. Default: 2,000. */
  readonly simulated?: number;
}

const PLAN_LIMITS: PlacementLimits = {
  slice: MAX_NODE_EVALUATIONS,
  total: MAX_NODE_EVALUATIONS,
};

/**
 * The node evaluations of one plan or simulation, in all of its simulated clusters together. A plan
 * has one slice of the budget; a simulation of the whole cluster has one for each workload.
 */
export class PlacementBudget {
  private evaluatedNodes = 0;
  private evaluatedInSlice = 0;
  private newReplicasInSlice = 0;
  private refusedDecision = false;

  /** @param limits - Default: those of a plan. */
  constructor(
    private readonly nodeCount: number,
    private readonly limits: PlacementLimits = PLAN_LIMITS,
  ) {}

  /** Most node evaluations in all slices together. */
  get maxEvaluations(): number {
    return this.limits.total;
  }

  /** Most new replicas in one slice. */
  get maxNewReplicas(): number {
    return this.limits.newReplicas ?? MAX_NEW_REPLICAS;
  }

  /** True after a placement decision was refused in this slice: its prediction is not complete. */
  get isExhausted(): boolean {
    return this.refusedDecision;
  }

  /** Node evaluations so far, in all slices. */
  get evaluations(): number {
    return this.evaluatedNodes;
  }

  /** Number of existing replicas of a workload up to which all are simulated one by one. */
  get maxSimulated(): number {
    return this.limits.simulated ?? MAX_SIMULATED;
  }

  /** Begins a slice, in which decisions are possible again unless the total is reached. */
  beginSlice(): void {
    this.evaluatedInSlice = 0;
    this.newReplicasInSlice = 0;
    this.refusedDecision = false;
  }

  /**
   * Counts replicas that a workload wants beside its existing replicas.
   * @returns The number of new replicas to predict, at most `wanted`.
   */
  consumeNewReplicas(wanted: number): number {
    const left = this.maxNewReplicas - this.newReplicasInSlice;
    const granted = Math.max(0, Math.min(wanted, left));
    this.newReplicasInSlice += granted;
    return granted;
  }

  /**
   * Counts one placement decision.
   * @returns False when the budget is exhausted, so that the decision must not be made.
   */
  consumeDecision(): boolean {
    if (!this.consume(this.nodeCount)) this.refusedDecision = true;
    return !this.refusedDecision;
  }

  /**
   * Counts the search for a change after which a node fits, with all of its trials.
   * @returns False when the rest of the budget is too small. Placement decisions may still follow.
   */
  consumeSuggestion(): boolean {
    return this.consume(this.nodeCount * MAX_SUGGESTION_TRIALS);
  }

  private consume(evaluations: number): boolean {
    const { slice, total } = this.limits;
    if (this.evaluatedInSlice + evaluations > slice) return false;
    if (this.evaluatedNodes + evaluations > total) return false;
    this.evaluatedInSlice += evaluations;
    this.evaluatedNodes += evaluations;
    return true;
  }
}
