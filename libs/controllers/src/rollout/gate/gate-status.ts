import { create } from '@bufbuild/protobuf';
import {
  RolloutGateStatusSchema,
  RolloutGateStatus_Verdict as Verdict,
  type RolloutGateStatus,
} from '@cloudless/api';
import type { ControlRecord, WorkloadRecord } from '@cloudless/api/store';
import type { GateEvaluation } from './rollout-gates.js';

/**
 * Builds the status of the gate of the current canary step.
 * @param evaluation - The newest evaluation by this coordinator. Undefined: none, so that the status
 *   has no figures.
 * @returns Undefined while no gate is evaluated.
 */
export function toGateStatus(
  { version, spec }: WorkloadRecord,
  control: ControlRecord | undefined,
  evaluation: GateEvaluation | undefined,
): RolloutGateStatus | undefined {
  const { gateSince, gateVerdict = Verdict.NO_DATA, stepsDone = 0 } = control?.rollout ?? {};
  const expression = spec?.rollout?.steps[stepsDone]?.gate ?? '';
  if (gateSince === undefined || expression === '' || control?.rollout?.version !== version)
    return undefined;
  const isCurrent = evaluation?.expression === expression;
  const { result, figures = [] } = (isCurrent ? evaluation : undefined) ?? {};
  return create(RolloutGateStatusSchema, {
    expression,
    verdict: gateVerdict,
    since: gateSince,
    reason: result?.kind === 'noData' ? result.reason : '',
    values: [...figures],
  });
}
