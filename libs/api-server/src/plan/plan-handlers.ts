import { create, clone, toBinary } from '@bufbuild/protobuf';
import { timestampFromMs, timestampMs } from '@bufbuild/protobuf/wkt';
import type { HandlerContext } from '@connectrpc/connect';
import {
  CoordinatorService,
  ExecutePlanResponseSchema,
  PlanSchema,
  resolveNamespace,
  type CreatePlanRequest,
  type ExecutePlanRequest,
  type ExecutePlanResponse,
  type Plan,
  type WorkloadPlan,
} from '@cloudless/api';
import { PlanRecordSchema, type PlanRecord } from '@cloudless/api/store';
import { CloudlessError, hasErrorReason, randomHex } from '@cloudless/base';
import type { ClusterView } from '@cloudless/cluster-state';
import { retryOnConflict } from '../mutation/retry-on-conflict.js';
import { releaseBrakeOf } from '../node/node-change.js';
import { presentNode } from '../node/node-presenter.js';
import { finishRemoval } from '../node/node-removal.js';
import { CallAccess } from '../access/call-access.js';
import type { ApiCaller } from '../access/caller.js';
import type { AuditEntry } from '../audit/audit-log.js';
import type { ApiServerDeps } from '../ports.js';
import { runIdempotent, type MutationDeps } from '../mutation/idempotent-mutation.js';
import type { AdmissionDeps } from '../workload/workload-change.js';
import {
  checkSpecBytes,
  truncatePlan,
  computeOutcomeHash,
  selectPlansToDelete,
} from '../workload/plan-size.js';
import {
  getOverrideOfChange,
  readJudgedCall,
  requireOverridePermission,
  type JudgedCall,
} from '../policy/policy-override.js';
import { describeNodeDifference, describePlanDifference } from './plan-difference.js';
import { requireChanges } from './plan-access.js';
import { PlanReads, getPlan, toMs } from './plan-reads.js';
import { planChanges, validateChanges, type PlannedOutcome } from './planned-changes.js';
import { withPolicyWarnings, withoutPolicyWarnings } from './policy-warnings.js';
import { checkRemovedReplicas, putChanges, requireUnchanged } from './put-changes.js';

/** Random bytes of a plan id: enough that two of 1 000 stored plans never have the same id. */
const ID_BYTES = 8;
/**
 * Time in which a plan can be executed, milliseconds. One hour is enough for a review; an older
 * plan seldom matches the state.
 */
const PLAN_LIFE_MS = 3_600_000;

/** Handlers of the calls of CoordinatorService that create and execute plans. */
export class PlanHandlers {
  /** Encoded sizes of plan records in bytes. A record is never changed in place. */
  private readonly recordBytes = new WeakMap<PlanRecord, number>();

  private readonly access: CallAccess;
  private readonly reads: PlanReads;

  constructor(private readonly deps: ApiServerDeps & MutationDeps & AdmissionDeps) {
    this.access = new CallAccess(deps);
    this.reads = new PlanReads(deps);
  }

  /** Predicts the effect of changes and stores the prediction. The cluster does not change. */
  async createPlan(request: CreatePlanRequest, entry: AuditEntry): Promise<Plan> {
    const { state, clock, random } = this.deps;
    validateChanges(request.changes);
    this.requirePermission(entry.caller, request);
    return retryOnConflict({ clock, random, subject: 'the list of plans' }, async () => {
      const { outcome, ...predicted } = await this.predict(request);
      const plan = truncatePlan({
        ...predicted.plan,
        id: randomHex(random, ID_BYTES),
        expiresAt: timestampFromMs(toMs(predicted.plan.createdAt) + PLAN_LIFE_MS),
      });
      const record = create(PlanRecordSchema, {
        plan,
        outcome: computeOutcomeHash(outcome.plans, outcome.nodes),
      });
      const transaction = state
        .transaction()
        .require('plan', plan.id, 'absent')
        .put('plan', plan.id, record);
      for (const id of this.listPlansToDelete(state.view(), record)) transaction.delete('plan', id);
      await entry.commit(transaction);
      return plan;
    });
  }

  /** Predicts the effect of changes. Stores nothing. */
  async predictPlan(request: CreatePlanRequest, context: HandlerContext): Promise<Plan> {
    validateChanges(request.changes);
    this.requirePermission(this.access.getCaller(context), request);
    return truncatePlan((await this.predict(request, context.signal)).plan);
  }

  /**
   * Makes all changes of a plan in one transaction.
   * @throws kind `conflict` when the outcome is no longer the one that the plan shows, reason
   *   POLICY_DENIED when policies now deny a workload and the request does not override them,
   *   `precondition` when the plan was executed before, `notFound` when it is unknown or expired.
   */
  async executePlan(request: ExecutePlanRequest, entry: AuditEntry): Promise<ExecutePlanResponse> {
    const call = readJudgedCall(entry.caller, CoordinatorService.method.executePlan, request);
    const response = await runIdempotent(
      this.deps,
      CoordinatorService.method.executePlan,
      { request, entry },
      (view) => {
        const { presenter, state, tracer, clock } = this.deps;
        const stored = this.reads.requirePlan(view, request.id, entry.caller);
        const plan = getPlan(stored.value);
        requireChanges(this.access, entry.caller, plan.changes);
        checkNotExecuted(plan);
        const { changes, plans } = this.requireSameOutcome(view, stored.value, call);
        const transaction = state.transaction().require('plan', plan.id, stored);
        const { workloads, nodes } = putChanges(this.deps, view, transaction, changes, call);
        requireUnchanged(transaction, view, plans);
        const executed = clone(PlanRecordSchema, stored.value);
        getPlan(executed).executedAt = timestampFromMs(clock.wallTime());
        transaction.put('plan', plan.id, executed);
        for (const { uid } of workloads) tracer?.mark(uid);
        const response = create(ExecutePlanResponseSchema, {
          workloads: workloads.map((record) => presenter.present(record, /* full */ false)),
          nodes: nodes.map((record) => presentNode(this.deps, record)),
          removedNodeIds: changes.flatMap((checked) =>
            checked.kind === 'removal' ? [checked.current.value.id] : [],
          ),
        });
        return { response, transaction };
      },
      (response) => this.checkReplay(entry.caller, response),
    );
    await this.finishNodeChanges(request.id, entry);
    return response;
  }

  /** @throws kind `denied` when the caller may not make the changes, or not override policies. */
  private requirePermission(caller: ApiCaller, { changes }: CreatePlanRequest): void {
    requireChanges(this.access, caller, changes);
    if (changes.some((change) => getOverrideOfChange(change) !== undefined))
      requireOverridePermission(caller, CoordinatorService.method.createPlan);
  }

  /**
   * Predicts the outcome of changes.
   * @throws the errors of {@link planChanges}; kind `exhausted` for changes that one transaction
   *   cannot make, so that a plan is rejected now instead of at its execution.
   */
  private async predict(
    { changes }: CreatePlanRequest,
    signal?: AbortSignal,
  ): Promise<{ readonly plan: Plan; readonly outcome: PlannedOutcome }> {
    const nowMs = this.deps.clock.wallTime();
    const context = { createdAtMs: nowMs, getOverride: getOverrideOfChange };
    const view = this.deps.state.view();
    const outcome = await this.deps.dryRun.predict(
      planChanges(this.deps, view, changes, context),
      signal,
    );
    requireUnchanged(this.deps.state.transaction(), view, outcome.plans);
    checkRemovedReplicas(view, outcome.changes);
    checkSpecBytes(
      outcome.changes.flatMap((checked) =>
        checked.kind === 'workload' ? [checked.change.spec] : [],
      ),
    );
    const plan = create(PlanSchema, {
      createdAt: timestampFromMs(nowMs),
      changes,
      workloads: outcome.plans.map((each) => withPolicyWarnings(each, outcome.admitted.get(each))),
      nodes: [...outcome.nodes],
      revision: outcome.revision,
    });
    return { plan, outcome };
  }

  /**
   * Completes the changes of nodes after the commit of a plan, as the calls for these changes do.
   * Safe to repeat.
   */
  private async finishNodeChanges(planId: string, entry: AuditEntry): Promise<void> {
    const changes = this.deps.state.view().plan(planId)?.value.plan?.changes ?? [];
    for (const { change } of changes) {
      if (change.case === 'confirmNodeLost') releaseBrakeOf(this.deps, change.value.nodeId);
      if (change.case === 'removeNode') await finishRemoval(this.deps, change.value.nodeId, entry);
    }
  }

  /**
   * Predicts the outcome of the plan again, without a pause: the transaction is built on the state
   * of the prediction, so that nothing is made that the plan does not show.
   * @throws kind `conflict` with the difference when the outcome is not the stored one.
   */
  private requireSameOutcome(
    view: ClusterView,
    record: PlanRecord,
    { overrideReason }: JudgedCall,
  ): PlannedOutcome {
    const plan = getPlan(record);
    let outcome: PlannedOutcome;
    try {
      outcome = this.deps.dryRun.predictAtOnce(
        planChanges(this.deps, view, plan.changes, {
          createdAtMs: toMs(plan.createdAt),
          getOverride: () => overrideReason,
        }),
      );
    } catch (reason) {
      if (!(reason instanceof CloudlessError) || reason.kind === 'internal') throw reason;
      if (hasErrorReason(reason, 'POLICY_DENIED')) throw reason;
      throw createOutdatedError(plan, reason.message, reason);
    }
    const hash = computeOutcomeHash(outcome.plans, outcome.nodes);
    if (Buffer.compare(hash, record.outcome) === 0) return outcome;
    const workloads = plan.workloads.map(withoutPolicyWarnings);
    throw createOutdatedError(
      plan,
      describeNodeDifference(plan.nodes, outcome.nodes) ??
        describePlanDifference(workloads, truncateLike(workloads, outcome.plans)) ??
        'the outcome after the listed steps has changed',
    );
  }

  /**
   * Checks that the caller may still make the changes that a stored response shows.
   * @throws kind `denied`.
   */
  private checkReplay(
    caller: ApiCaller,
    { workloads, nodes, removedNodeIds }: ExecutePlanResponse,
  ): void {
    const method = CoordinatorService.method.executePlan;
    for (const workload of workloads)
      this.access.requireNamespace(caller, method, resolveNamespace(workload));
    if (nodes.length + removedNodeIds.length > 0) this.access.requireNamespace(caller, method, '');
  }

  /** Returns the ids of the plans to delete when `added` is stored. */
  private listPlansToDelete(view: ClusterView, added: PlanRecord): readonly string[] {
    const stored = [...view.plans()].map(([id, { value, revision }]) => ({
      id,
      revision,
      bytes: this.getRecordBytes(value),
    }));
    return selectPlansToDelete(stored, this.getRecordBytes(added));
  }

  private getRecordBytes(record: PlanRecord): number {
    const bytes = this.recordBytes.get(record) ?? toBinary(PlanRecordSchema, record).length;
    this.recordBytes.set(record, bytes);
    return bytes;
  }
}

function checkNotExecuted({ id, executedAt }: Plan): void {
  if (executedAt === undefined) return;
  const when = new Date(timestampMs(executedAt)).toISOString();
  throw new CloudlessError(
    'PLAN_EXECUTED',
    `plan "${id}" was already executed at ${when}; create a new plan`,
  );
}

function createOutdatedError({ id }: Plan, difference: string, cause?: unknown): CloudlessError {
  return new CloudlessError(
    'PLAN_STALE',
    `plan "${id}" is outdated: ${difference}; create a new plan`,
    { cause },
  );
}

/**
 * Truncates new plans where the stored plans are truncated, to the same number of steps and
 * placements, so that both can be compared.
 */
function truncateLike(
  stored: readonly WorkloadPlan[],
  current: readonly WorkloadPlan[],
): readonly WorkloadPlan[] {
  return current.map((plan, index) => {
    const storedPlan = stored[index];
    if (storedPlan === undefined) return plan;
    const truncate = <Item>(items: Item[], storedCount: number, total: number): Item[] =>
      storedCount < total ? items.slice(0, storedCount) : items;
    return {
      ...plan,
      steps: truncate(plan.steps, storedPlan.steps.length, storedPlan.totalSteps),
      placements: truncate(
        plan.placements,
        storedPlan.placements.length,
        storedPlan.totalPlacements,
      ),
    };
  });
}
