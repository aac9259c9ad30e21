import { clone } from '@bufbuild/protobuf';
import {
  Event_Category as Category,
  Event_Severity as Severity,
  RolloutStatus_Phase as Phase,
  isRolledOut,
  type PromoteRolloutRequest,
} from '@cloudless/api';
import {
  ControlRecordSchema,
  EvictionRecordSchema,
  type ControlRecord,
  type EvictionRecord,
  type WorkloadRecord,
} from '@cloudless/api/store';
import { CloudlessError } from '@cloudless/base';
import type { ClusterView, Stored, Transaction } from '@cloudless/cluster-state';
import { requireMutableWorkload, type WorkloadName } from '../lookup.js';

/** A change of the control record of a workload, with the texts of its event. */
export interface RolloutUpdate {
  readonly change: {
    /** Version whose rollout is paused; 0: none. */
    readonly pausedVersion?: number;
    readonly promoted?: boolean;
    readonly retry?: boolean;
    /** All replicas to move, with those of an earlier request that still run. */
    readonly eviction?: EvictionRecord;
  };
  readonly reason: string;
  /** End of the message of the event. Unused with `message`. */
  readonly description: string;
  /** The whole message of the event. */
  readonly message?: string;
}

/** The records of a workload that a change of its rollout reads. */
export interface RolloutRecords {
  readonly workload: Stored<WorkloadRecord>;
  readonly control: Stored<ControlRecord>;
}

/**
 * Returns the records of the workload that a request names.
 * @throws the errors of {@link requireMutableWorkload}.
 */
export function readRollout(view: ClusterView, request: WorkloadName): RolloutRecords {
  const workload = requireMutableWorkload(view, request);
  return { workload, control: requireControl(view, workload.value) };
}

/**
 * Decides to pause a rollout.
 * @returns Undefined when the rollout is paused already.
 * @throws kind `precondition` when the rollout is completed or has failed.
 */
export function decidePause(
  workload: WorkloadRecord,
  control: ControlRecord,
): RolloutUpdate | undefined {
  if (isPaused(workload, control)) return undefined;
  requireInProgress(workload, control, 'nothing to pause');
  const failed =
    control.rollout?.version === workload.version && control.rolloutPhase === Phase.FAILED;
  if (failed)
    throw new CloudlessError(
      'ROLLOUT_PHASE',
      `${formatWorkload(workload)}: ${describeFailure(control)}; ${
        control.activeVersion === 0
          ? 'the first rollout of a workload keeps trying: update the workload, scale it to 0, or delete it'
          : 'it makes no further changes: resume or undo it'
      }`,
    );
  return {
    change: { pausedVersion: workload.version },
    reason: 'RolloutPauseRequested',
    description: 'was requested to pause',
  };
}

/**
 * Decides to resume a paused rollout, or to retry a failed one.
 * @throws kind `precondition` when the rollout is neither paused nor failed.
 */
export function decideResume(workload: WorkloadRecord, control: ControlRecord): RolloutUpdate {
  const failed =
    control.rollout?.version === workload.version && control.rolloutPhase === Phase.FAILED;
  if (!failed && !isPaused(workload, control)) {
    const hint =
      control.rollout?.waitsForPromotion === true
        ? 'it waits for a promotion: promote it'
        : 'nothing to resume';
    throw new CloudlessError(
      'ROLLOUT_PHASE',
      `${formatWorkload(workload)}: its rollout is not paused; ${hint}`,
    );
  }
  return {
    // `retry`: failures before this call, also those during the pause, no longer count.
    change: { pausedVersion: 0, retry: true },
    reason: 'RolloutResumeRequested',
    description: failed ? 'was requested to retry' : 'was requested to resume',
  };
}

/**
 * Decides to promote a rollout.
 * @returns Undefined when the rollout is promoted already.
 * @throws kind `precondition` when the rollout does not wait, or `version` is another version.
 */
export function decidePromotion(
  request: Pick<PromoteRolloutRequest, 'version'>,
  workload: WorkloadRecord,
  control: ControlRecord,
): RolloutUpdate | undefined {
  const { rollout } = control;
  if (rollout?.version !== workload.version || !rollout.waitsForPromotion) {
    throw new CloudlessError(
      'ROLLOUT_PHASE',
      `${formatWorkload(workload)}: its rollout does not wait for a promotion${describeState(control)}`,
    );
  }
  if (request.version !== 0 && request.version !== rollout.version) {
    throw new CloudlessError(
      'ROLLOUT_PHASE',
      `${formatWorkload(workload)}: version ${rollout.version} waits for a promotion, not version ${request.version}`,
    );
  }
  if (rollout.promoted) return undefined;
  return {
    change: { promoted: true },
    reason: 'RolloutPromoted',
    description: 'was promoted',
  };
}

/** Returns a copy of a control record with a change. */
export function withRolloutUpdate(control: ControlRecord, update: RolloutUpdate): ControlRecord {
  const next = clone(ControlRecordSchema, control);
  const { pausedVersion, eviction, ...rollout } = update.change;
  if (eviction !== undefined) next.eviction = clone(EvictionRecordSchema, eviction);
  if (pausedVersion !== undefined) next.pausedVersion = pausedVersion;
  // The workload reconciler sets the reason again. Until then, the reason of the pause must not be
  // shown.
  if (pausedVersion === 0) next.rolloutReason = '';
  if (next.rollout !== undefined) Object.assign(next.rollout, rollout);
  return next;
}

/**
 * Adds a change of a rollout and its event to a transaction, which then fails when the workload or
 * its control record has changed since they were read.
 */
export function putRolloutUpdate(
  transaction: Transaction,
  { workload, control }: RolloutRecords,
  update: RolloutUpdate,
  requestId: string,
): void {
  const { uid, namespace, name, version } = workload.value;
  transaction
    .require('workload', uid, workload)
    .require('control', uid, control)
    .put('control', uid, withRolloutUpdate(control.value, update))
    .event({
      severity: Severity.INFO,
      category: Category.ROLLOUT,
      reason: update.reason,
      message:
        update.message ??
        `the rollout of version ${version} of ${namespace}/${name} ${update.description}`,
      namespace,
      workload: name,
      requestId,
    });
}

function requireControl(view: ClusterView, workload: WorkloadRecord): Stored<ControlRecord> {
  const control = view.control(workload.uid);
  if (control === undefined)
    throw new CloudlessError('internal', `${formatWorkload(workload)} has no control record`);
  return control;
}

function isPaused({ version }: WorkloadRecord, { pausedVersion }: ControlRecord): boolean {
  return pausedVersion === version;
}

/**
 * Requires that the newest version is not rolled out yet.
 * @param hint - End of the error message.
 * @throws kind `precondition` when the rollout of the newest version is completed.
 */
function requireInProgress(workload: WorkloadRecord, control: ControlRecord, hint: string): void {
  if (control.rollout?.version !== workload.version || !isRolledOut(control.rolloutPhase)) return;
  throw new CloudlessError(
    'ROLLOUT_PHASE',
    `${formatWorkload(workload)}: version ${workload.version} is rolled out; ${hint}`,
  );
}

function describeState({ rolloutPhase, rolloutReason }: ControlRecord): string {
  return `: it is ${Phase[rolloutPhase]}${rolloutReason === '' ? '' : `, ${rolloutReason}`}`;
}

function describeFailure({ rolloutReason }: ControlRecord): string {
  return `its rollout failed: ${rolloutReason}`;
}

/** Returns the name of a workload for an error: `workload "default/web"`. */
export function formatWorkload({
  namespace,
  name,
}: Pick<WorkloadRecord, 'namespace' | 'name'>): string {
  return `workload "${namespace}/${name}"`;
}
