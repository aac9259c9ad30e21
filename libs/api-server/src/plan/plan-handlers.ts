import { create, clone, toBinary } from '@bufbuild/protobuf';
import { timestampFromMs, timestampMs } from '@bufbuild/protobuf/wkt';
import {
  CoordinatorService,
  ExecutePlanResponseSchema,
  PlanSchema,
  type CreatePlanRequest,
  type ExecutePlanRequest,
  type ExecutePlanResponse,
  type GetPlanRequest,
  type Plan,
  type WorkloadPlan,
} from '@cloudless/api';
import { PlanRecordSchema, type PlanRecord } from '@cloudless/api/store';
import { CloudlessError, randomHex } from '@cloudless/base';
import type { ClusterView, Stored } from '@cloudless/cluster-state';
import { retryOnConflict } from '../mutation/retry-on-conflict.js';
import { presentNode } from '../node/node-presenter.js';
import type { AuditEntry } from '../audit/audit-log.js';
import type { ApiServerDeps } from '../ports.js';
import { runIdempotent, type MutationDeps } from '../mutation/idempotent-mutation.js';
import {
  checkSpecBytes,
  truncatePlan,
  computeOutcomeHash,
  selectPlansToDelete,
} from '../workload/plan-size.js';
import { describePlanDifference } from './plan-difference.js';
import {
  validateChanges,
  putChanges,
  requireUnchanged,
  planChanges,
  type PlannedOutcome,
} from './planned-changes.js';

/** Random bytes of a plan id: enough that two of 1 000 stored plans never have the same id. */
const ID_BYTES = 8;
/**
 * Time in which a plan can be executed, milliseconds. One hour is enough for a review; an older
 * plan seldom matches the state.
 */
const PLAN_LIFE_MS = 3_600_000;

/** Handlers of the plan calls of CoordinatorService. */
export class PlanHandlers {
  /** Encoded sizes of plan records in bytes. A record is never changed in place. */
  private readonly recordBytes = new WeakMap<PlanRecord, number>();

  constructor(private readonly deps: ApiServerDeps & MutationDeps) {}

  /** Predicts the effect of changes and stores the prediction. The cluster does not change. */
  async createPlan(request: CreatePlanRequest, entry: AuditEntry): Promise<Plan> {
    const { state, clock, random } = this.deps;
    validateChanges(request.changes);
    return retryOnConflict({ clock, random, subject: 'the list of plans' }, async () => {
      const view = state.view();
      const nowMs = clock.wallTime();
      const { plans, changes } = planChanges(this.deps, view, request.changes, nowMs);
      // Rejects a plan that affects too many workloads now, instead of at its execution.
      requireUnchanged(state.transaction(), view, plans);
      checkSpecBytes(
        changes.flatMap((checked) => (checked.kind === 'workload' ? [checked.change.spec] : [])),
      );
      const plan = truncatePlan(
        create(PlanSchema, {
          id: randomHex(random, ID_BYTES),
          createdAt: timestampFromMs(nowMs),
          expiresAt: timestampFromMs(nowMs + PLAN_LIFE_MS),
          changes: request.changes,
          workloads: [...plans],
          revision: view.revision,
        }),
      );
      const record = create(PlanRecordSchema, { plan, outcome: computeOutcomeHash(plans) });
      const transaction = state
        .transaction()
        .require('plan', plan.id, 'absent')
        .put('plan', plan.id, record);
      for (const id of this.listPlansToDelete(view, record)) transaction.delete('plan', id);
      await entry.commit(transaction);
      return plan;
    });
  }

  getPlan(request: GetPlanRequest): Plan {
    return getPlan(this.requirePlan(this.deps.state.view(), request.id).value);
  }

  /**
   * Makes all changes of a plan in one transaction.
   * @throws kind `conflict` when the outcome is no longer the one that the plan shows,
   *   `precondition` when the plan was executed before, `notFound` when it is unknown or expired.
   */
  executePlan(request: ExecutePlanRequest, entry: AuditEntry): Promise<ExecutePlanResponse> {
    return runIdempotent(
      this.deps,
      CoordinatorService.method.executePlan,
      { request, entry },
      (view) => {
        const { presenter, state, tracer, clock } = this.deps;
        const stored = this.requirePlan(view, request.id);
        const plan = getPlan(stored.value);
        checkNotExecuted(plan);
        const { changes, plans } = this.requireSameOutcome(view, plan, stored.value.outcome);
        const transaction = state.transaction().require('plan', plan.id, stored);
        const { workloads, nodes } = putChanges(
          this.deps,
          view,
          transaction,
          changes,
          request.requestId,
        );
        requireUnchanged(transaction, view, plans);
        const executed = clone(PlanRecordSchema, stored.value);
        getPlan(executed).executedAt = timestampFromMs(clock.wallTime());
        transaction.put('plan', plan.id, executed);
        for (const { uid } of workloads) tracer?.mark(uid);
        const response = create(ExecutePlanResponseSchema, {
          workloads: workloads.map((record) => presenter.present(record, /* full */ false)),
          nodes: nodes.map((record) => presentNode(this.deps, record)),
        });
        return { response, transaction };
      },
    );
  }

  /**
   * Predicts the outcome of the plan again.
   * @param outcomeHash - Hash of the outcome when the plan was created.
   * @throws kind `conflict` with the difference when the outcome is not the stored one.
   */
  private requireSameOutcome(
    view: ClusterView,
    plan: Plan,
    outcomeHash: Uint8Array,
  ): PlannedOutcome {
    let outcome: PlannedOutcome;
    try {
      outcome = planChanges(this.deps, view, plan.changes, toMs(plan.createdAt));
    } catch (reason) {
      if (!(reason instanceof CloudlessError) || reason.kind === 'internal') throw reason;
      throw createOutdatedError(plan, reason.message, reason);
    }
    if (Buffer.compare(computeOutcomeHash(outcome.plans), outcomeHash) === 0) return outcome;
    throw createOutdatedError(
      plan,
      describePlanDifference(plan.workloads, truncateLike(plan.workloads, outcome.plans)) ??
        'the outcome after the listed steps has changed',
    );
  }

  /** @throws kind `notFound` when the plan does not exist or has expired. */
  private requirePlan(view: ClusterView, id: string): Stored<PlanRecord> {
    const stored = view.plan(id);
    if (stored === undefined) {
      throw new CloudlessError(
        'notFound',
        `plan "${id}" not found: plans are stored for one hour; create a new plan`,
      );
    }
    const expiresMs = toMs(getPlan(stored.value).expiresAt);
    if (this.deps.clock.wallTime() < expiresMs) return stored;
    throw new CloudlessError(
      'notFound',
      `plan "${id}" expired at ${new Date(expiresMs).toISOString()}; create a new plan`,
    );
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

function getPlan({ plan }: PlanRecord): Plan {
  return plan ?? create(PlanSchema);
}

function checkNotExecuted({ id, executedAt }: Plan): void {
  if (executedAt === undefined) return;
  const when = new Date(timestampMs(executedAt)).toISOString();
  throw new CloudlessError(
    'precondition',
    `plan "${id}" was already executed at ${when}; create a new plan`,
  );
}

function createOutdatedError({ id }: Plan, difference: string, cause?: unknown): CloudlessError {
  return new CloudlessError(
    'conflict',
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

function toMs(time: Plan['createdAt']): number {
  return time === undefined ? 0 : timestampMs(time);
}
