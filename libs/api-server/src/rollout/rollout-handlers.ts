import { clone } from '@bufbuild/protobuf';
import type { DescMessage, DescMethodUnary, MessageShape } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import type { HandlerContext } from '@connectrpc/connect';
import {
  CoordinatorService,
  WorkloadSpecSchema,
  type PauseRolloutRequest,
  type PromoteRolloutRequest,
  type RestartRolloutRequest,
  type ResumeRolloutRequest,
  type UndoRolloutRequest,
  type Workload,
  type WorkloadSchema,
  type WorkloadSpec,
} from '@cloudless/api';
import type { ControlRecord, VersionRecord, WorkloadRecord } from '@cloudless/api/store';
import { CloudlessError } from '@cloudless/base';
import {
  toCanonicalVersion,
  describeNewPins,
  restoreSpecOfVersion,
  type ClusterView,
} from '@cloudless/cluster-state';
import type { AuditEntry } from '../audit/audit-log.js';
import type { ApiServerDeps } from '../ports.js';
import {
  runIdempotent,
  type MutatingCall,
  type MutationResult,
  type MutationDeps,
} from '../mutation/idempotent-mutation.js';
import { createResponsePresenter } from '../workload/response-presenter.js';
import {
  changeWorkload,
  type AdmissionDeps,
  type WorkloadChange,
} from '../workload/workload-change.js';
import { readJudgedCall } from '../policy/policy-override.js';
import { requireMutableWorkload, requireVersion, getSpec, type WorkloadName } from '../lookup.js';
import {
  decidePause,
  decidePromotion,
  decideResume,
  formatWorkload,
  putRolloutUpdate,
  readRollout,
  type RolloutUpdate,
} from './rollout-update.js';

/** Handlers of the calls of CoordinatorService that change rollouts. */
export class RolloutHandlers {
  constructor(private readonly deps: ApiServerDeps & MutationDeps & AdmissionDeps) {}

  /**
   * Pauses the rollout of the newest version. A repeated call changes nothing.
   * @throws kind `precondition` when the rollout is completed or has failed.
   */
  pauseRollout(
    request: PauseRolloutRequest,
    entry: AuditEntry,
    context: HandlerContext,
  ): Promise<Workload> {
    return this.updateRollout(
      CoordinatorService.method.pauseRollout,
      { request, entry, context },
      decidePause,
    );
  }

  /**
   * Resumes a paused rollout, or retries a failed one.
   * @throws kind `precondition` when the rollout is neither paused nor failed.
   */
  resumeRollout(
    request: ResumeRolloutRequest,
    entry: AuditEntry,
    context: HandlerContext,
  ): Promise<Workload> {
    return this.updateRollout(
      CoordinatorService.method.resumeRollout,
      { request, entry, context },
      decideResume,
    );
  }

  /**
   * Promotes a rollout that waits for a promotion. A repeated call changes nothing.
   * @throws kind `precondition` when the rollout does not wait, or `version` is another version.
   */
  promoteRollout(
    request: PromoteRolloutRequest,
    entry: AuditEntry,
    context: HandlerContext,
  ): Promise<Workload> {
    return this.updateRollout(
      CoordinatorService.method.promoteRollout,
      { request, entry, context },
      (workload, control) => decidePromotion(request, workload, control),
    );
  }

  async undoRollout(
    request: UndoRolloutRequest,
    entry: AuditEntry,
    context: HandlerContext,
  ): Promise<Workload> {
    const call = readJudgedCall(entry.caller, CoordinatorService.method.undoRollout, request);
    const present = createResponsePresenter(this.deps, context);
    return this.withNewVersion(
      present,
      await runIdempotent(
        this.deps,
        CoordinatorService.method.undoRollout,
        { request, entry },
        (view) => changeWorkload(this.deps, view, createUndo(view, request), call, present),
      ),
    );
  }

  async restartRollout(
    request: RestartRolloutRequest,
    entry: AuditEntry,
    context: HandlerContext,
  ): Promise<Workload> {
    const call = readJudgedCall(entry.caller, CoordinatorService.method.restartRollout, request);
    const present = createResponsePresenter(this.deps, context);
    return this.withNewVersion(
      present,
      await runIdempotent(
        this.deps,
        CoordinatorService.method.restartRollout,
        { request, entry },
        (view) =>
          changeWorkload(
            this.deps,
            view,
            createRestart(view, request, this.deps.clock.wallTime()),
            call,
            present,
          ),
      ),
    );
  }

  /**
   * Builds the response again after the commit, so that its status contains the new version.
   * Returns the response unchanged when another change of the workload has followed.
   */
  private withNewVersion(
    present: (record: WorkloadRecord) => Workload,
    response: Workload,
  ): Workload {
    const { namespace, name, uid, generation } = response;
    const current = this.deps.state.view().workloadByName(namespace, name)?.value;
    const isUnchanged = current?.uid === uid && current.generation === generation;
    return isUnchanged ? present(current) : response;
  }

  /**
   * Runs a call that changes the control record of a workload.
   * @param decide - Returns the change; undefined when the rollout has the requested state already.
   */
  private updateRollout<Request extends DescMessage>(
    method: DescMethodUnary<Request, typeof WorkloadSchema>,
    {
      request,
      entry,
      context,
    }: MutatingCall<MessageShape<Request> & WorkloadName & { readonly requestId: string }> & {
      readonly context: HandlerContext;
    },
    decide: (workload: WorkloadRecord, control: ControlRecord) => RolloutUpdate | undefined,
  ): Promise<Workload> {
    const present = createResponsePresenter(this.deps, context);
    return runIdempotent(
      this.deps,
      method,
      { request, entry },
      (view): MutationResult<Workload> => {
        const read = readRollout(view, request);
        const update = decide(read.workload.value, read.control.value);
        const response = present(read.workload.value);
        if (update === undefined) return { response };
        const transaction = this.deps.state.transaction();
        putRolloutUpdate(transaction, read, update, request.requestId);
        return { response, transaction };
      },
    );
  }
}

/**
 * Creates the change of a workload that restores the template of an earlier version.
 * @throws the errors of {@link requireMutableWorkload} and {@link findUndoTarget}.
 */
export function createUndo(view: ClusterView, request: UndoRolloutRequest): WorkloadChange {
  const current = requireMutableWorkload(view, request);
  const { namespace, name } = current.value;
  const version = findUndoTarget(view, current.value, request.toVersion);
  const spec = restoreSpecOfVersion(view, current.value, version);
  return {
    namespace,
    name,
    current,
    spec,
    reason: 'WorkloadUpdated',
    cause: `undo to version ${version.version}`,
    note: describeNewPins(version.asWritten, spec),
  };
}

/**
 * Creates the change of a workload that replaces all of its replicas with the same template.
 * @param nowMs - Time of the restart, wall-clock milliseconds.
 * @throws the errors of {@link requireMutableWorkload}.
 */
export function createRestart(
  view: ClusterView,
  request: RestartRolloutRequest,
  nowMs: number,
): WorkloadChange {
  const current = requireMutableWorkload(view, request);
  const { namespace, name } = current.value;
  const spec = withRestartTime(getSpec(current.value), nowMs);
  return { namespace, name, current, spec, reason: 'WorkloadUpdated', cause: 'restart' };
}

/**
 * Returns the version that an undo goes back to.
 * @param toVersion - The requested version. 0: while a rollout is in progress, the active version;
 *   otherwise the newest earlier version with another template that was rolled out completely.
 * @throws kind `precondition` when there is no such version, or the workload has its template
 *   already; `notFound` when the requested version is not stored.
 */
export function findUndoTarget(
  view: ClusterView,
  workload: WorkloadRecord,
  toVersion: number,
): VersionRecord {
  const { uid, version } = workload;
  const toCanonical = (number: number): number => toCanonicalVersion(view, uid, number);
  if (toVersion !== 0) {
    const target = requireVersion(view, workload, toVersion);
    if (toCanonical(toVersion) !== toCanonical(version)) return target;
    throw new CloudlessError(
      'NO_EARLIER_VERSION',
      `${formatWorkload(workload)} has the template of version ${toVersion} already`,
    );
  }
  const active = view.control(uid)?.value.activeVersion ?? 0;
  const others = view
    .versions(uid)
    .filter((kept) => kept.version < version && toCanonical(kept.version) !== toCanonical(version));
  const isRollingOut = active !== 0 && toCanonical(active) !== toCanonical(version);
  const target = isRollingOut
    ? view.version(uid, active)
    : others.findLast(({ rolledOut }) => rolledOut);
  if (target !== undefined) return target;
  const hint =
    others.length === 0 ? '' : ' that was rolled out; name one of its versions with to_version';
  throw new CloudlessError(
    'NO_EARLIER_VERSION',
    `${formatWorkload(workload)} has no earlier version to go back to${hint}`,
  );
}

/** Returns a copy of a spec with another restart time, which makes the template differ. */
export function withRestartTime(spec: WorkloadSpec, nowMs: number): WorkloadSpec {
  return Object.assign(clone(WorkloadSpecSchema, spec), { restartedAt: timestampFromMs(nowMs) });
}
