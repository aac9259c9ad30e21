import { MAX_SUGGESTION_TRIALS } from '@cloudless/scheduler';

/**
 * Most node evaluations of one plan: each placement decision evaluates every node once. This many
 * evaluations take about 0.1 s, during which the coordinator does nothing else.
 */
const MAX_NODE_EVALUATIONS = 20_000;

/** The node evaluations of one plan, in all of its simulated clusters together. */
export class PlacementBudget {
  private evaluatedNodes = 0;
  private refusedDecision = false;

  constructor(private readonly nodeCount: number) {}

  /** True after a placement decision was refused: the plan is not complete. */
  get isExhausted(): boolean {
    return this.refusedDecision;
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
    if (this.evaluatedNodes + evaluations > MAX_NODE_EVALUATIONS) return false;
    this.evaluatedNodes += evaluations;
    return true;
  }
}
