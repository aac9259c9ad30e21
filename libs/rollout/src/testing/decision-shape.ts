import { decideNextSteps, type RolloutDecision, type RolloutObserved } from '../index.js';
import { anObserved } from './builders.js';

/**
 * Formats a decision: `+2` creates a replica of version 2 (`+2@n1` on node n1), `-3` stops replica
 * w-3, `=2` switches to version 2; otherwise the wait reason, or `converged`.
 */
export function toShape(decision: RolloutDecision): string {
  if (decision.kind === 'converged') return decision.kind;
  if (decision.kind === 'waiting') return decision.reason.kind;
  const signs = decision.steps.map((step) => {
    if (step.kind === 'stopReplica') return `-${step.replicaId.slice(2)}`;
    if (step.kind === 'switchVersion') return `=${step.version}`;
    return `+${step.version}${step.nodeId === undefined ? '' : `@${step.nodeId}`}`;
  });
  return signs.join(' ');
}

/** Formats the decision for a workload that rolls to version 2. */
export const decideShape = (changes: Partial<RolloutObserved>): string =>
  toShape(decideNextSteps(anObserved(changes)));
