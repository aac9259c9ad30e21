import { formatReplicaCount } from '@cloudless/rollout';

/** Numbers of replicas whose placement was not predicted, by the limit that is the reason. */
export interface NotPredicted {
  /** Replicas that an update replaces after the simulated ones, and in the same way. */
  readonly replacedLater: number;
  /** New or waiting replicas beyond those that a plan simulates. */
  readonly beyondNew: number;
  /** Replicas for which a plan chose no node, because it had evaluated too many nodes. */
  readonly beyondEvaluations: number;
}

/** The limits that a text names. */
export interface NamedLimits {
  /** Number of existing replicas of the workload that were simulated. */
  readonly simulated: number;
  readonly newReplicas: number;
  readonly evaluations: number;
}

export const countNotPredicted = ({
  replacedLater,
  beyondNew,
  beyondEvaluations,
}: NotPredicted): number => replacedLater + beyondNew + beyondEvaluations;

/**
 * Describes why the placement of replicas was not predicted: `the placement of 198000 replicas was
 * not predicted: 198000 are replaced after the 2000 that a plan simulates`. Empty when all were.
 */
export function describeNotPredicted(
  numbers: NotPredicted,
  { simulated, newReplicas, evaluations }: NamedLimits,
): string {
  const count = countNotPredicted(numbers);
  if (count === 0) return '';
  const reasons = [
    [numbers.replacedLater, `replaced after the ${simulated} that a plan simulates`],
    [numbers.beyondNew, `beyond the ${newReplicas} new or waiting replicas that a plan simulates`],
    [
      numbers.beyondEvaluations,
      `beyond the ${evaluations} evaluations of a node that a plan makes`,
    ],
  ] as const;
  const texts = reasons
    .filter(([replicas]) => replicas > 0)
    .map(([replicas, text]) => `${replicas} ${replicas === 1 ? 'is' : 'are'} ${text}`);
  return `the placement of ${formatReplicaCount(count)} was not predicted: ${texts.join(', ')}`;
}
