import {
  Taint_Effect as Effect,
  Toleration_Operator as Operator,
  type Taint,
} from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import type { CheckedView } from '../parts/durable-records.js';
import type { NodeFacts } from '../parts/node-facts.js';

/**
 * Returns the taints of a node that the replica template does not tolerate. Derived from the API
 * contract, independently of the scheduler.
 */
export function untoleratedTaints(
  view: Pick<CheckedView, 'version'>,
  { uid, version }: Pick<ReplicaRecord, 'uid' | 'version'>,
  nodeId: string,
  { taints }: Pick<NodeFacts, 'taints'>,
): readonly Taint[] {
  const { tolerations = [] } = view.version(uid, version)?.template?.placement ?? {};
  return (taints?.get(nodeId) ?? []).filter(
    (taint) =>
      !tolerations.some(
        ({ key, operator, value, effect }) =>
          (effect === undefined || effect === taint.effect) &&
          (key === taint.key || key === '') &&
          (operator === Operator.EXISTS || value === taint.value),
      ),
  );
}

/** Returns true when the node is draining or has a NO_EXECUTE taint that is not tolerated. */
export function isEvicted(
  view: Pick<CheckedView, 'version'>,
  replica: ReplicaRecord,
  nodeFacts: NodeFacts,
): boolean {
  return (
    nodeFacts.draining.has(replica.nodeId) ||
    untoleratedTaints(view, replica, replica.nodeId, nodeFacts).some(
      ({ effect }) => effect === Effect.NO_EXECUTE,
    )
  );
}
