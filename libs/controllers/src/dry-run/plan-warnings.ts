import { create } from '@bufbuild/protobuf';
import {
  PlanWarningSchema,
  PlanWarning_Kind as Kind,
  Rollout_Strategy as Strategy,
  isRolledOut,
  withDefaults,
  type PlanWarning,
  type WorkloadSpec,
} from '@cloudless/api';
import type { ControlRecord } from '@cloudless/api/store';
import { formatReplicaCount } from '@cloudless/rollout';
import { isGlobal } from '../rollout/global-targets.js';
import type { DryRunResult } from './dry-run-result.js';

/**
 * Returns the warnings about a change of a workload that would preempt replicas or not complete by
 * itself. Replicas that waited for a node before are no effect of the change, so they are not
 * counted.
 */
export function warnIncomplete(result: DryRunResult): readonly PlanWarning[] {
  return warn(result, result.unplaced - result.waitedBefore, '');
}

/**
 * Returns the warnings of {@link warnIncomplete} about a change of a node. Also counts replicas
 * that waited before: the drain needs nodes for their replacements. `subject` says whether the
 * drain itself finishes.
 * @param subject - Start of the sentence about replicas without a node: `the drain of node-1 would
 *   not finish: `. Default: empty.
 */
export function warnIncompleteMove(result: DryRunResult, subject = ''): readonly PlanWarning[] {
  return warn(result, result.unplaced, subject);
}

/**
 * Returns the warnings about a prediction. Replicas without a node block all later steps, so a
 * warning about them replaces the warning with {@link DryRunResult.stuckReason}.
 */
function warn(result: DryRunResult, unplaced: number, subject: string): readonly PlanWarning[] {
  const { unplacedReason, stuckReason, notPredicted, preempts, preempted } = result;
  const warnings: PlanWarning[] = [];
  if (preempted > 0) warnings.push(createWarning(Kind.PREEMPTS, preempts, preempted));
  if (notPredicted > 0)
    warnings.push(createWarning(Kind.NOT_PREDICTED, result.notPredictedReason, notPredicted));
  if (unplaced > 0)
    warnings.push({
      ...createWarning(
        Kind.NO_NODE_FITS,
        `${subject}${formatReplicaCount(unplaced)} would find no node: ${unplacedReason}`,
        unplaced,
      ),
      suggestion: result.suggestChange(),
    });
  else if (stuckReason !== undefined)
    warnings.push(createWarning(Kind.DOES_NOT_COMPLETE, stuckReason));
  return warnings;
}

/**
 * Returns the warning that replicas would leave their nodes only when another replica is ready,
 * which may never be. None beside replicas without a node, which have a warning of their own.
 * @param subject - What would wait, for example `the drain of node-1`.
 */
export function warnMoveWait(
  { moveWaitReason, unplaced }: DryRunResult,
  subject: string,
): readonly PlanWarning[] {
  if (moveWaitReason === undefined || unplaced > 0) return [];
  return [createWarning(Kind.DOES_NOT_COMPLETE, `${subject} would wait: ${moveWaitReason}`)];
}

/** Returns the warning that the change supersedes a rollout that is not complete. */
export function warnSuperseded(
  control: ControlRecord | undefined,
  version: number,
): readonly PlanWarning[] {
  const currentVersion = control?.rollout?.version ?? 0;
  if (currentVersion === 0 || isRolledOut(control?.rolloutPhase)) return [];
  return [
    createWarning(
      Kind.SUPERSEDES_ROLLOUT,
      `the rollout of version ${currentVersion} is not done; version ${version} takes its place`,
    ),
  ];
}

/**
 * Returns the warning that an explicit `min_available` is not kept as written: RECREATE keeps none,
 * and a number above that of the replicas is lowered. 0 replicas keep none on purpose, and the
 * number of replicas in mode GLOBAL is that of the nodes.
 */
export function warnMinAvailable(spec: WorkloadSpec): readonly PlanWarning[] {
  const { rollout, replicas = 0 } = withDefaults(spec);
  const minAvailable = rollout?.minAvailable ?? 0;
  if (minAvailable === 0) return [];
  if (rollout?.strategy === Strategy.RECREATE)
    return [
      createWarning(
        Kind.BELOW_MIN_AVAILABLE,
        `min_available ${minAvailable} cannot be kept: RECREATE stops all replicas first`,
      ),
    ];
  if (replicas === 0 || minAvailable <= replicas || isGlobal(spec)) return [];
  return [
    createWarning(
      Kind.MIN_AVAILABLE_LOWERED,
      `min_available ${minAvailable} is above the number of replicas and counts as ${replicas}: until there are more, rollouts and drains stop no replica before its replacement is available`,
    ),
  ];
}

/** Returns the warning that a forced drain goes below `min_available`. */
export function warnForcedDrain({
  lowestReady,
  minAvailable,
}: DryRunResult): readonly PlanWarning[] {
  if (lowestReady >= minAvailable) return [];
  return [
    createWarning(
      Kind.BELOW_MIN_AVAILABLE,
      `the drain is forced: as few as ${lowestReady} would be ready, and min_available is ${minAvailable}`,
    ),
  ];
}

/** Returns the warning about running replicas that a deletion ends. */
export function warnDeletion(running: number): readonly PlanWarning[] {
  return running === 0
    ? []
    : [
        createWarning(
          Kind.STOPS_REPLICAS,
          `${formatReplicaCount(running)} ${running === 1 ? 'stops' : 'stop'} for good`,
          running,
        ),
      ];
}

function createWarning(kind: Kind, message: string, replicas = 0): PlanWarning {
  return create(PlanWarningSchema, { kind, message, replicas });
}
