import { toReplicaId } from '@cloudless/base';
import type { RolloutObserved, RolloutReplica } from '../index.js';
import { resolveLimits } from '../index.js';

/** A running, available replica of version 1; override what the test is about. */
export function aReplica(sequence: number, changes: Partial<RolloutReplica> = {}): RolloutReplica {
  return {
    id: toReplicaId(`w-${sequence}`),
    version: 1,
    available: true,
    desired: 'running',
    lost: false,
    draining: false,
    createdSequence: sequence,
    ...changes,
  };
}

/** `count` equal replicas with ids that count up from `from` (default 1). */
export function someReplicas(
  count: number,
  changes: Partial<RolloutReplica> = {},
  from = 1,
): RolloutReplica[] {
  return Array.from({ length: count }, (_, index) => aReplica(from + index, changes));
}

/** A workload of three replicas with default limits, rolling to version 2. */
export function anObserved(changes: Partial<RolloutObserved> = {}): RolloutObserved {
  return { ...resolveLimits({ desired: changes.want ?? 3 }), version: 2, replicas: [], ...changes };
}
