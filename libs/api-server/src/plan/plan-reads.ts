import { create } from '@bufbuild/protobuf';
import { timestampMs } from '@bufbuild/protobuf/wkt';
import type { HandlerContext } from '@connectrpc/connect';
import {
  ListPlansResponseSchema,
  PlanSchema,
  paginate,
  type GetPlanRequest,
  type ListPlansRequest,
  type ListPlansResponse,
  type Plan,
} from '@cloudless/api';
import type { PlanRecord } from '@cloudless/api/store';
import { CloudlessError } from '@cloudless/base';
import type { ClusterView, Stored } from '@cloudless/cluster-state';
import { CallAccess } from '../access/call-access.js';
import type { ApiCaller } from '../access/caller.js';
import type { ReadDeps } from '../ports.js';
import { isVisiblePlan } from './plan-access.js';
import { summarizePlan } from './plan-summary.js';

/** Handlers of the calls of CoordinatorService that read plans. */
export class PlanReads {
  private readonly access: CallAccess;

  constructor(private readonly deps: Pick<ReadDeps, 'state' | 'clock' | 'getCaller' | 'identity'>) {
    this.access = new CallAccess(deps);
  }

  /** Lists the plans that have not expired and that the caller may read, newest first. */
  listPlans(request: ListPlansRequest, context: HandlerContext): ListPlansResponse {
    const caller = this.access.getCaller(context);
    const nowMs = this.deps.clock.wallTime();
    const plans = [...this.deps.state.view().plans()]
      .map(([, { value }]) => getPlan(value))
      .filter(({ expiresAt }) => nowMs < toMs(expiresAt))
      .filter((plan) => isVisiblePlan(this.access, caller, plan))
      .sort((a, b) => (toAgeKey(a) < toAgeKey(b) ? 1 : -1));
    const { items, nextPageToken } = paginate(plans, toAgeKey, request, {
      filter: ['plans'],
      compare: (a, b) => (a < b ? 1 : a > b ? -1 : 0),
    });
    return create(ListPlansResponseSchema, { plans: items.map(summarizePlan), nextPageToken });
  }

  getPlan(request: GetPlanRequest, context: HandlerContext): Plan {
    const caller = this.access.getCaller(context);
    return getPlan(this.requirePlan(this.deps.state.view(), request.id, caller).value);
  }

  /**
   * @throws kind `notFound` when the plan does not exist, has expired, or the caller may not read the
   *   plan.
   */
  requirePlan(view: ClusterView, id: string, caller: ApiCaller): Stored<PlanRecord> {
    const stored = view.plan(id);
    if (stored === undefined || !isVisiblePlan(this.access, caller, getPlan(stored.value))) {
      throw new CloudlessError(
        'PLAN_NOT_FOUND',
        `plan "${id}" not found: plans are stored for one hour; create a new plan`,
      );
    }
    const expiresMs = toMs(getPlan(stored.value).expiresAt);
    if (this.deps.clock.wallTime() < expiresMs) return stored;
    throw new CloudlessError(
      'PLAN_NOT_FOUND',
      `plan "${id}" expired at ${new Date(expiresMs).toISOString()}; create a new plan`,
    );
  }
}

/** Returns the plan in a record. */
export function getPlan({ plan }: PlanRecord): Plan {
  return plan ?? create(PlanSchema);
}

/** Returns wall-clock milliseconds; 0 for an absent time. */
export function toMs(time: Plan['createdAt']): number {
  return time === undefined ? 0 : timestampMs(time);
}

/** Returns the sort key of a plan: its creation time, then its id. */
function toAgeKey({ id, createdAt }: Plan): string {
  return `${String(toMs(createdAt)).padStart(16, '0')}/${id}`;
}
