import { Event_Category as Category, Event_Severity as Severity, type Event } from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import type { ClusterView, EventInit } from '@cloudless/cluster-state';
import { selectNewest } from '../common/causes.js';

/** A replica with its node and the score of that node. */
export interface PlacedReplica {
  readonly replica: ReplicaRecord;
  readonly nodeId: string;
  readonly score: number;
}

/** Facts that all events of one decision share. */
export interface DecisionFacts {
  readonly view: Pick<ClusterView, 'lastEventOfReplica'>;
  readonly workload: WorkloadRecord;
  readonly decisionId: string;
  /** Cause of the decision. Default: the newest event about one of the replicas. */
  readonly causedBy?: EventInit | Event | undefined;
}

/** Returns the id that the events of a placement decision share. */
export function toDecisionId(
  { revision }: Pick<ClusterView, 'revision'>,
  { uid }: Pick<WorkloadRecord, 'uid'>,
): string {
  return `schedule/${uid}@${revision}`;
}

/** Creates the event for replicas that were placed. */
export function createPlacedEvent(facts: DecisionFacts, placed: readonly PlacedReplica[]) {
  const counts = new Map<string, number>();
  for (const { nodeId } of placed) counts.set(nodeId, (counts.get(nodeId) ?? 0) + 1);
  const distribution: string[] = [];
  counts.forEach((count, nodeId) => distribution.push(`${count} on ${nodeId}`));
  return {
    severity: Severity.INFO,
    reason: 'ReplicasPlaced',
    message: `placed ${placed.length} ${placed.length === 1 ? 'replica' : 'replicas'}: ${distribution.join(', ')}`,
    ...(counts.size === 1 ? { nodeId: placed[0]?.nodeId ?? '' } : {}),
    ...describeSubject(
      facts,
      placed.map(({ replica }) => replica),
      explainScores(placed),
    ),
  };
}

/**
 * Creates the event for replicas that no node fits.
 * @param why - Message of the event.
 */
export function createUnplacedEvent(
  facts: DecisionFacts,
  refused: readonly ReplicaRecord[],
  why: string,
) {
  return {
    severity: Severity.WARNING,
    reason: 'ReplicasUnplaced',
    message: why,
    ...describeSubject(facts, refused, why),
  };
}

function describeSubject(
  { view, workload, decisionId, causedBy }: DecisionFacts,
  replicas: readonly ReplicaRecord[],
  why: string,
) {
  const [first] = replicas;
  return {
    category: Category.SCHEDULING,
    namespace: workload.namespace,
    workload: workload.name,
    replicaIds: replicas.map(({ id }) => id),
    ...(replicas.length === 1 ? { replicaId: first?.id ?? '' } : {}),
    causedBy: causedBy ?? selectNewest(...replicas.map(({ id }) => view.lastEventOfReplica(id))),
    decision: { id: decisionId, why },
  };
}

/**
 * Explains placements by their scores. The scores of equal replicas differ, as each placement makes
 * its node fuller for the next one.
 */
function explainScores(placed: readonly PlacedReplica[]): string {
  const [first] = placed;
  if (first === undefined) return '';
  const [lowest, highest] = findRange(placed).map((score) => score.toFixed(3));
  if (first.replica.onlyNodeId !== '')
    return `each goes to the one node that it is for, which fits; scores from ${lowest} to ${highest}`;
  return placed.length === 1
    ? `${first.nodeId} was the best node that fits, with a score of ${highest}`
    : `each went to the best node that fitted it, with scores from ${lowest} to ${highest}`;
}

/** Returns the lowest and the highest score. */
function findRange(placed: readonly PlacedReplica[]): readonly [number, number] {
  let [lowest, highest] = [Infinity, -Infinity];
  for (const { score } of placed) {
    lowest = Math.min(lowest, score);
    highest = Math.max(highest, score);
  }
  return [lowest, highest];
}
