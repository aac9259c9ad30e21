import type { RolloutDecision } from './decision.js';
import type { RolloutObserved } from './observed.js';
import { createChooser, decideRollingUpdate } from './rolling-update.js';
import {
  decideActions,
  sortByDisruptionOrder,
  countWhere,
  isStaying,
  tallyReplicas,
  toSteps,
} from './replica-tally.js';
import { formatReplicaCount, waitFor } from './waiting.js';

/**
 * Decides the next steps of RECREATE: stops all replicas of other versions, whatever `minAvailable`
 * says, and creates new replicas when no replica of another version is live. Replicas on lost nodes
 * do not delay the creation. Scaling and draining within one version keep `minAvailable`.
 */
export function decideRecreate(observed: RolloutObserved): RolloutDecision {
  const { version, baseVersion = version } = observed;
  const others = observed.replicas.filter(
    (replica) => !replica.lost && replica.version !== version,
  );
  if (observed.paused === true)
    return decideRollingUpdate({
      ...observed,
      baseVersion: others.length > 0 ? baseVersion : version,
    });
  if (others.length === 0) return decideRollingUpdate(observed);
  const current = observed.replicas.filter((replica) => replica.version === version);
  const { stops } = decideActions(observed, tallyReplicas(current, createChooser(observed)));
  const steps = toSteps({
    creates: [],
    stops: [...sortByDisruptionOrder(others.filter(isStaying)), ...stops],
  });
  if (steps.length > 0) return { kind: 'steps', steps };
  const leaving = countWhere(others, (replica) => !isStaying(replica));
  return waitFor(
    'stopping',
    'replicas',
    `${formatReplicaCount(leaving)} of other versions still stopping`,
  );
}
