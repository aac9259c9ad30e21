// Plans a rolling update step by step. Your program executes the steps; here they only change a
// list in memory and always succeed.
import { toReplicaId } from '@cloudless/base';
import { decideNextSteps, resolveLimits, type RolloutReplica } from '@cloudless/rollout';

const NEW_VERSION = 2;

/** The existing replicas: at first three of version 1. */
let replicas: readonly RolloutReplica[] = [1, 2, 3].map((sequence) => aReplica(sequence, 1));

// All three must stay available, so the update needs a surge of one.
const limits = resolveLimits({ desired: 3, minAvailable: 3, maxSurge: 1 });

for (let round = 1; ; round += 1) {
  // The decision depends only on this input, so after a crash it can be computed again.
  const decision = decideNextSteps({ ...limits, version: NEW_VERSION, replicas });
  if (decision.kind !== 'steps') {
    console.log(`round ${round}: ${decision.kind === 'waiting' ? decision.reason.text : 'done'}`);
    break;
  }
  for (const step of decision.steps) {
    if (step.kind === 'createReplica') {
      const created = aReplica(
        Math.max(...replicas.map((replica) => replica.createdSequence)) + 1,
        2,
      );
      replicas = [...replicas, created];
      console.log(`round ${round}: start ${created.id} of version ${step.version}`);
    } else if (step.kind === 'stopReplica') {
      replicas = replicas.filter(({ id }) => id !== step.replicaId);
      console.log(`round ${round}: stop ${step.replicaId}`);
    }
  }
  const available = replicas.filter((replica) => replica.available).length;
  console.log(`  ${available} available, at least ${limits.minAvailable} promised`);
}

function aReplica(sequence: number, version: number): RolloutReplica {
  return {
    id: toReplicaId(`web-${sequence}`),
    version,
    available: true,
    desired: 'running',
    lost: false,
    draining: false,
    createdSequence: sequence,
  };
}
