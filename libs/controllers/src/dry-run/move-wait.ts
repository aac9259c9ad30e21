import { create } from '@bufbuild/protobuf';
import { WorkloadSpecSchema } from '@cloudless/api';
import type { WorkloadRecord } from '@cloudless/api/store';
import type { RolloutDecision, RolloutObserved } from '@cloudless/rollout';
import { isGlobal } from '../rollout/global-targets.js';
import { movesStopFirst } from '../rollout/rollout-input.js';

/**
 * Returns the reason why replicas that have to leave their nodes, and end before their replacements
 * start, stay until another replica is ready; undefined when there is none.
 * @param decision - The first decision after the change.
 */
export function findMoveWait(
  { spec = create(WorkloadSpecSchema) }: Pick<WorkloadRecord, 'spec'>,
  { replicas }: Pick<RolloutObserved, 'replicas'>,
  decision: RolloutDecision,
): string | undefined {
  if (decision.kind !== 'waiting' || decision.reason.kind !== 'notReady') return undefined;
  const isMoving = replicas.some(
    ({ draining, available, desired, lost }) =>
      draining && available && desired === 'running' && !lost,
  );
  return isMoving && !isGlobal(spec) && movesStopFirst(spec) ? decision.reason.text : undefined;
}
