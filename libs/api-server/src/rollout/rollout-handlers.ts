import { clone, create } from '@bufbuild/protobuf';
import type { DescMessage, DescMethodUnary, MessageShape } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  CoordinatorService,
  Event_Category as Category,
  Event_Severity as Severity,
  RolloutStatus_Phase as Phase,
  WorkloadSpecSchema,
  WorkloadVersionSchema,
  type GetWorkloadVersionRequest,
  type PauseRolloutRequest,
  type PromoteRolloutRequest,
  type RestartRolloutRequest,
  type ResumeRolloutRequest,
  type UndoRolloutRequest,
  type Workload,
  type WorkloadSchema,
  type WorkloadSpec,
  type WorkloadVersion,
  isRolledOut,
} from '@cloudless/api';
import {
  ControlRecordSchema,
  type ControlRecord,
  type VersionRecord,
  type WorkloadRecord,
} from '@cloudless/api/store';
import { definedFields, CloudlessError } from '@cloudless/base';
import {
  toCanonicalVersion,
  restoreSpecOfVersion,
  type ClusterView,
  type Stored,
} from '@cloudless/cluster-state';
import type { AuditEntry } from '../audit/audit-log.js';
import type { ApiServerDeps } from '../ports.js';
import {
  runIdempotent,
  type MutatingCall,
  type MutationResult,
  type MutationDeps,
} from '../mutation/idempotent-mutation.js';
import { changeWorkload, type WorkloadChange } from '../workload/workload-change.js';
import {
  requireMutableWorkload,
  requireWorkload,
  getSpec,
  type WorkloadName,
} from '../workload/lookup.js';

/** Handlers of the rollout calls of CoordinatorService. */
export class RolloutHandlers {
  constructor(private readonly deps: ApiServerDeps & MutationDeps) {}

  pauseRollout(request: PauseRolloutRequest, entry: AuditEntry): Promise<Workload> {
    return this.updateRollout(
      CoordinatorService.method.pauseRollout,
      { request, entry },
      (workload, control) => {
        if (isPaused(workload, control)) return undefined;
        requireInProgress(workload, control, 'nothing to pause');
        const failed =
          control.rollout?.version === workload.version && control.rolloutPhase === Phase.FAILED;
        if (failed)
          throw new CloudlessError(
            'precondition',
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
      },
    );
  }

  resumeRollout(request: ResumeRolloutRequest, entry: AuditEntry): Promise<Workload> {
    return this.updateRollout(
      CoordinatorService.method.resumeRollout,
      { request, entry },
      (workload, control) => {
        const failed =
          control.rollout?.version === workload.version && control.rolloutPhase === Phase.FAILED;
        if (!failed && !isPaused(workload, control)) {
          const hint =
            control.rollout?.waitsForPromotion === true
              ? 'it waits for a promotion: promote it'
              : 'nothing to resume';
          throw new CloudlessError(
            'precondition',
            `${formatWorkload(workload)}: its rollout is not paused; ${hint}`,
          );
        }
        return {
          // Failures so far, also during the pause, no longer count.
          change: { pausedVersion: 0, retry: true },
          reason: 'RolloutResumeRequested',
          description: failed ? 'was requested to retry' : 'was requested to resume',
        };
      },
    );
  }

  promoteRollout(request: PromoteRolloutRequest, entry: AuditEntry): Promise<Workload> {
    return this.updateRollout(
      CoordinatorService.method.promoteRollout,
      { request, entry },
      (workload, control) => {
        const { rollout } = control;
        if (rollout?.version !== workload.version || !rollout.waitsForPromotion) {
          throw new CloudlessError(
            'precondition',
            `${formatWorkload(workload)}: its rollout does not wait for a promotion${describeState(control)}`,
          );
        }
        if (request.version !== 0 && request.version !== rollout.version) {
          throw new CloudlessError(
            'precondition',
            `${formatWorkload(workload)}: version ${rollout.version} waits for a promotion, not version ${request.version}`,
          );
        }
        if (rollout.promoted) return undefined;
        return {
          change: { promoted: true },
          reason: 'RolloutPromoted',
          description: 'was promoted',
        };
      },
    );
  }

  async undoRollout(request: UndoRolloutRequest, entry: AuditEntry): Promise<Workload> {
    return this.withNewVersion(
      await runIdempotent(
        this.deps,
        CoordinatorService.method.undoRollout,
        { request, entry },
        (view) => changeWorkload(this.deps, view, createUndo(view, request), request.requestId),
      ),
    );
  }

  async restartRollout(request: RestartRolloutRequest, entry: AuditEntry): Promise<Workload> {
    return this.withNewVersion(
      await runIdempotent(
        this.deps,
        CoordinatorService.method.restartRollout,
        { request, entry },
        (view) =>
          changeWorkload(
            this.deps,
            view,
            createRestart(view, request, this.deps.clock.wallTime()),
            request.requestId,
          ),
      ),
    );
  }

  getWorkloadVersion(request: GetWorkloadVersionRequest): WorkloadVersion {
    const view = this.deps.state.view();
    const { value } = requireWorkload(view, request);
    const kept = requireVersion(view, value, request.version);
    const info = this.deps.presenter
      .present(value, true)
      .status?.versions.find(({ version }) => version === request.version);
    const template = kept.asWritten ?? kept.template;
    return create(WorkloadVersionSchema, {
      ...definedFields({ info, template }),
    });
  }

  /**
   * Adds the version that the change created to the response, unless another change has followed.
   */
  private withNewVersion(answer: Workload): Workload {
    const present = this.deps.state.view().workloadByName(answer.namespace, answer.name)?.value;
    const isOwn = present?.uid === answer.uid && present.generation === answer.generation;
    return isOwn ? this.deps.presenter.present(present, true) : answer;
  }

  /**
   * @param decide - Returns the change of the rollout of the newest version; undefined when the
   *   rollout is in that state already.
   */
  private updateRollout<Request extends DescMessage>(
    method: DescMethodUnary<Request, typeof WorkloadSchema>,
    {
      request,
      entry,
    }: MutatingCall<MessageShape<Request> & WorkloadName & { readonly requestId: string }>,
    decide: (workload: WorkloadRecord, control: ControlRecord) => RolloutUpdate | undefined,
  ): Promise<Workload> {
    return runIdempotent(
      this.deps,
      method,
      { request, entry },
      (view): MutationResult<Workload> => {
        const workload = requireMutableWorkload(view, request);
        const { uid, namespace, name, version } = workload.value;
        const control = requireControl(view, workload.value);
        const steering = decide(workload.value, control.value);
        const result = this.deps.presenter.present(workload.value, true);
        if (steering === undefined) return { response: result };
        const next = clone(ControlRecordSchema, control.value);
        const { pausedVersion, ...rollout } = steering.change;
        if (pausedVersion !== undefined) next.pausedVersion = pausedVersion;
        // The next reconcile sets the reason again. Until then the rollout must not look paused.
        if (pausedVersion === 0) next.rolloutReason = '';
        if (next.rollout !== undefined) Object.assign(next.rollout, rollout);
        const transaction = this.deps.state
          .transaction()
          .require('workload', uid, workload)
          .require('control', uid, control)
          .put('control', uid, next)
          .event({
            severity: Severity.INFO,
            category: Category.ROLLOUT,
            reason: steering.reason,
            message: `the rollout of version ${version} of ${namespace}/${name} ${steering.description}`,
            namespace,
            workload: name,
            requestId: request.requestId,
          });
        return { response: result, transaction };
      },
    );
  }
}

/** A change of a rollout, with the texts of its event. */
interface RolloutUpdate {
  readonly change: {
    readonly pausedVersion?: number;
    readonly promoted?: boolean;
    readonly retry?: boolean;
  };
  readonly reason: string;
  readonly description: string;
}

/**
 * Plans an undo. @throws the errors of {@link requireMutableWorkload} and {@link findUndoTarget}.
 */
export function createUndo(view: ClusterView, request: UndoRolloutRequest): WorkloadChange {
  const current = requireMutableWorkload(view, request);
  const { namespace, name } = current.value;
  const version = findUndoTarget(view, current.value, request.toVersion);
  const spec = restoreSpecOfVersion(getSpec(current.value), version);
  return {
    namespace,
    name,
    current,
    spec,
    reason: 'WorkloadUpdated',
    cause: `undo to version ${version.version}`,
  };
}

/** Plans a restart. @throws the errors of {@link requireMutableWorkload}. */
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
 * @throws kind `precondition` when there is none, `notFound` when the requested version is not
 *   kept.
 */
export function findUndoTarget(
  view: ClusterView,
  workload: WorkloadRecord,
  toVersion: number,
): VersionRecord {
  const { uid, version } = workload;
  const canonical = (number: number): number => toCanonicalVersion(view, uid, number);
  if (toVersion !== 0) {
    const target = requireVersion(view, workload, toVersion);
    if (canonical(toVersion) !== canonical(version)) return target;
    throw new CloudlessError(
      'precondition',
      `${formatWorkload(workload)} has the template of version ${toVersion} already`,
    );
  }
  // While a rollout is in progress, the target is the version before it; otherwise the newest
  // version with another template that was rolled out.
  const active = view.control(uid)?.value.activeVersion ?? 0;
  const others = view
    .versions(uid)
    .filter((kept) => kept.version < version && canonical(kept.version) !== canonical(version));
  const isOther = active !== 0 && canonical(active) !== canonical(version);
  const target = isOther
    ? view.version(uid, active)
    : others.findLast(({ rolledOut }) => rolledOut);
  if (target !== undefined) return target;
  const hint =
    others.length === 0 ? '' : ' that was rolled out; name one of its versions with to_version';
  throw new CloudlessError(
    'precondition',
    `${formatWorkload(workload)} has no earlier version to go back to${hint}`,
  );
}

/** Returns a spec whose template differs only in its restart time. */
export function withRestartTime(spec: WorkloadSpec, nowMs: number): WorkloadSpec {
  return Object.assign(clone(WorkloadSpecSchema, spec), { restartedAt: timestampFromMs(nowMs) });
}

function requireVersion(
  view: ClusterView,
  workload: WorkloadRecord,
  version: number,
): VersionRecord {
  const kept = view.version(workload.uid, version);
  if (kept !== undefined) return kept;
  const numbers = view.versions(workload.uid).map((known) => known.version);
  throw new CloudlessError(
    'notFound',
    `${formatWorkload(workload)} has no version ${version}; the kept versions are ${numbers.join(', ')}`,
  );
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

function requireInProgress(
  workload: WorkloadRecord,
  control: ControlRecord,
  otherwise: string,
): void {
  if (control.rollout?.version !== workload.version || !isRolledOut(control.rolloutPhase)) return;
  throw new CloudlessError(
    'precondition',
    `${formatWorkload(workload)}: version ${workload.version} is rolled out; ${otherwise}`,
  );
}

function describeState({ rolloutPhase, rolloutReason }: ControlRecord): string {
  return `: it is ${Phase[rolloutPhase]}${rolloutReason === '' ? '' : `, ${rolloutReason}`}`;
}

function describeFailure({ rolloutReason }: ControlRecord): string {
  return `its rollout failed: ${rolloutReason}`;
}

function formatWorkload({ namespace, name }: Pick<WorkloadRecord, 'namespace' | 'name'>): string {
  return `workload "${namespace}/${name}"`;
}
