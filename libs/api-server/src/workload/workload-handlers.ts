import type { HandlerContext } from '@connectrpc/connect';
import {
  CoordinatorService,
  type CreateWorkloadRequest,
  type DeleteWorkloadRequest,
  type ExplainWorkloadRequest,
  type ExplainWorkloadResponse,
  type PlanWorkloadRequest,
  type ScaleWorkloadRequest,
  type UpdateWorkloadRequest,
  type Workload,
  type WorkloadPlan,
} from '@cloudless/api';
import { CallAccess } from '../access/call-access.js';
import type { AuditEntry } from '../audit/audit-log.js';
import type { ApiServerDeps } from '../ports.js';
import { runIdempotent, type MutationDeps } from '../mutation/idempotent-mutation.js';
import { checkFileRefs } from '../files/file-refs.js';
import { checkHostPorts } from '../network/host-port-conflicts.js';
import { requireWorkload } from '../lookup.js';
import { withPolicyWarnings } from '../plan/policy-warnings.js';
import { readJudgedCall, requireOverridePermission } from '../policy/policy-override.js';
import { createResponsePresenter } from './response-presenter.js';
import { changeWorkload, type AdmissionDeps } from './workload-change.js';
import { planDeletion, putDeletion } from './workload-deletion.js';
import { planApply, validateSpec, planCreate, planScale, planUpdate } from './spec-changes.js';
import { truncateWorkloadPlan } from './plan-size.js';

/** Handlers of the calls of CoordinatorService that change or predict workloads. */
export class WorkloadHandlers {
  private readonly access: CallAccess;

  constructor(private readonly deps: ApiServerDeps & MutationDeps & AdmissionDeps) {
    this.access = new CallAccess(deps);
  }

  createWorkload(
    request: CreateWorkloadRequest,
    entry: AuditEntry,
    context: HandlerContext,
  ): Promise<Workload> {
    validateSpec(this.deps, request.spec);
    const call = readJudgedCall(entry.caller, CoordinatorService.method.createWorkload, request);
    const present = createResponsePresenter(this.deps, context);
    return runIdempotent(
      this.deps,
      CoordinatorService.method.createWorkload,
      { request, entry },
      (view) =>
        changeWorkload(this.deps, view, planCreate(this.deps, view, request), call, present),
    );
  }

  updateWorkload(
    request: UpdateWorkloadRequest,
    entry: AuditEntry,
    context: HandlerContext,
  ): Promise<Workload> {
    const call = readJudgedCall(entry.caller, CoordinatorService.method.updateWorkload, request);
    const present = createResponsePresenter(this.deps, context);
    return runIdempotent(
      this.deps,
      CoordinatorService.method.updateWorkload,
      { request, entry },
      (view) =>
        changeWorkload(this.deps, view, planUpdate(this.deps, view, request), call, present),
    );
  }

  scaleWorkload(
    request: ScaleWorkloadRequest,
    entry: AuditEntry,
    context: HandlerContext,
  ): Promise<Workload> {
    const call = readJudgedCall(entry.caller, CoordinatorService.method.scaleWorkload, request);
    const present = createResponsePresenter(this.deps, context);
    return runIdempotent(
      this.deps,
      CoordinatorService.method.scaleWorkload,
      { request, entry },
      (view) => changeWorkload(this.deps, view, planScale(view, request), call, present),
    );
  }

  /**
   * Marks a workload for deletion; the workload reconciler stops its replicas and deletes the
   * records. A repeated call changes nothing.
   */
  deleteWorkload(
    request: DeleteWorkloadRequest,
    entry: AuditEntry,
    context: HandlerContext,
  ): Promise<Workload> {
    const present = createResponsePresenter(this.deps, context);
    return runIdempotent(
      this.deps,
      CoordinatorService.method.deleteWorkload,
      { request, entry },
      (view) => {
        const { current, after } = planDeletion(view, request, this.deps.clock.wallTime());
        const response = present(after ?? current.value);
        if (after === undefined) return { response };
        const transaction = this.deps.state.transaction();
        putDeletion(transaction, current, after);
        return { response, transaction };
      },
    );
  }

  /** Predicts the effect of creating or updating one workload. Stores nothing. */
  async planWorkload(request: PlanWorkloadRequest, context: HandlerContext): Promise<WorkloadPlan> {
    if (request.policyOverride !== undefined)
      requireOverridePermission(
        this.access.getCaller(context),
        CoordinatorService.method.planWorkload,
      );
    const { deps } = this;
    return deps.dryRun.predict(function* predict(planner) {
      const view = deps.state.view();
      const planned = planApply(deps, view, request);
      const admitted = deps.admission.check(view, planned, request.policyOverride?.reason);
      checkFileRefs(view, planned, deps.clock.wallTime());
      checkHostPorts(view, planned);
      const { current, ...change } = planned;
      const plan = yield* planner.planChange({ ...change, current: current?.value });
      return truncateWorkloadPlan(withPolicyWarnings(plan, admitted));
    }, context.signal);
  }

  explainWorkload(request: ExplainWorkloadRequest): ExplainWorkloadResponse {
    return this.deps.dryRun.explain(requireWorkload(this.deps.state.view(), request).value);
  }
}
