import type { ReplicaRecord } from '@cloudless/api/store';
import type { RolloutObserved } from '@cloudless/rollout';
import type { DryRunCluster } from './dry-run-cluster.js';

/** The replicas of a workload that a prediction only counts, beside those that it simulates. */
export interface CountedReplicas {
  /** Available replicas of the wanted version, which stay. */
  readonly staying: readonly ReplicaRecord[];
  /** Available replicas of other versions, to be replaced after the simulated replicas. */
  readonly replacedLater: readonly ReplicaRecord[];
  /** Replicas of the wanted version that wait for a node, as simulated replicas do. */
  readonly waiting: readonly ReplicaRecord[];
  /** Replicas of other versions that wait for a node. The update stops them first. */
  readonly stopping: readonly ReplicaRecord[];
  /** Number of replicas that the change creates. Includes the replacements of {@link stopping}. */
  readonly created: number;
}

/** Prediction for the counted replicas, concluded from the simulated ones. */
export interface CountedOutcome {
  /** Number of counted replicas that no node fits. */
  readonly unplaced: number;
  /** How many of the created replicas become ready. */
  readonly readyCreated: number;
  /** How many of the waiting replicas become ready. */
  readonly readyWaiting: number;
  /** How many of the replicas of other versions are replaced. */
  readonly replaced: number;
}

/**
 * Predicts what becomes of the counted replicas. All replicas of one version are equal: when no
 * node fits the last of the simulated replicas, none fits the counted ones, and when the update of
 * the simulated replicas completes, the update of the others does.
 * @param simulated - `unplaced`: number of simulated replicas that no node fits; `stuck`: true when
 *   another reason keeps the rollout from its end.
 */
export function predictCounted(
  { waiting, replacedLater, created }: CountedReplicas,
  simulated: { readonly unplaced: number; readonly stuck: boolean },
): CountedOutcome {
  if (simulated.unplaced > 0)
    return { unplaced: created + waiting.length, readyCreated: 0, readyWaiting: 0, replaced: 0 };
  return {
    unplaced: 0,
    readyCreated: created,
    readyWaiting: waiting.length,
    replaced: simulated.stuck ? 0 : replacedLater.length,
  };
}

/**
 * Returns the counted replicas as the rollout planner counts them.
 * @param waitingIsReady - True when the waiting replicas are predicted to have become ready.
 */
export function observeCounted(
  { staying, replacedLater, waiting }: CountedReplicas,
  waitingIsReady: boolean,
): Pick<RolloutObserved, 'waiting' | 'alsoAvailable'> {
  const alsoAvailable =
    staying.length + replacedLater.length + (waitingIsReady ? waiting.length : 0);
  const stillWaiting = waitingIsReady ? 0 : waiting.length;
  return {
    ...(alsoAvailable === 0 ? {} : { alsoAvailable }),
    ...(stillWaiting === 0 ? {} : { waiting: stillWaiting }),
  };
}

/** Returns how many of the counted waiting replicas the placer had refused before the change. */
export function countRefused({ waiting }: CountedReplicas): number {
  let refused = 0;
  for (const { reason } of waiting) if (reason !== '') refused += 1;
  return refused;
}

/** Adds the counted replicas of a workload, unchanged, to the replicas of a simulated cluster. */
export function putCountedReplicas(
  cluster: DryRunCluster,
  uid: string,
  { staying, replacedLater, waiting }: CountedReplicas,
): void {
  if (staying.length + replacedLater.length + waiting.length === 0) return;
  const simulated = cluster.replicasOf(uid);
  cluster.setReplicas(uid, [...staying, ...replacedLater, ...waiting, ...simulated]);
}
