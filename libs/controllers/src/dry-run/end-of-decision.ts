import type { PredictedStep } from '@cloudless/rollout';

/**
 * Returns the index after the last step of the decision that begins at `from`, or the index of its
 * first switch: the steps after a switch depend on the state that the switch leaves.
 */
export function findEndOfDecision(steps: readonly PredictedStep[], from: number): number {
  const decision = steps[from]?.decision;
  const belongsToDecision = (next: PredictedStep): boolean =>
    next.decision === decision && next.step.kind !== 'switchVersion';
  let end = from;
  for (let next = steps[end]; next !== undefined && belongsToDecision(next); next = steps[end])
    end += 1;
  return end;
}
