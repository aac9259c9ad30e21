import { createHash } from 'node:crypto';
import { create, toBinary } from '@bufbuild/protobuf';
import {
  PlanSchema,
  WorkloadPlanSchema,
  WorkloadSpecSchema,
  type Plan,
  type WorkloadPlan,
  type WorkloadSpec,
} from '@cloudless/api';
import { CloudlessError } from '@cloudless/base';

/**
 * Steps and placements of a workload that a plan lists. The numbers of a plan cover all of them.
 */
const MAX_SHOWN = 200;
/**
 * Size limit of a stored plan. Together with the records that its execution writes, it stays below
 * the store's limit of a transaction.
 */
const MAX_PLAN_BYTES = 500_000;
/**
 * Size limit of all specs that a plan writes. Each spec is written up to four times: in the
 * workload, in the version and its template, and in the response.
 */
const MAX_SPEC_BYTES = 100_000;

/** Number of stored plans. A new plan deletes the oldest one beyond this number. */
const MAX_PLANS = 1_000;
/** Size limit of all stored plans, which are also held in memory. */
const MAX_PLANS_BYTES = 64 * 1024 * 1024;
/**
 * Plans that one commit deletes. Together with the new plan this stays below the limit of 100
 * writes in a transaction; the next new plan deletes the rest.
 */
const MAX_DELETED = 50;

/** Truncates steps and placements of the plan of one workload. */
export function truncateWorkloadPlan(plan: WorkloadPlan, most: number = MAX_SHOWN): WorkloadPlan {
  const { steps, placements } = plan;
  if (steps.length <= most && placements.length <= most) return plan;
  return create(WorkloadPlanSchema, {
    ...plan,
    steps: steps.slice(0, most),
    placements: placements.slice(0, most),
  });
}

/**
 * Truncates a plan to the size limit of stored plans: the larger the plan, the fewer steps and
 * placements it keeps.
 * @throws kind `exhausted` when the plan is too large without any step and placement.
 */
export function truncatePlan(plan: Plan): Plan {
  for (let most = MAX_SHOWN; ; most = Math.floor(most / 2)) {
    const kept = create(PlanSchema, {
      ...plan,
      workloads: plan.workloads.map((one) => truncateWorkloadPlan(one, most)),
    });
    const bytes = toBinary(PlanSchema, kept).length;
    if (bytes <= MAX_PLAN_BYTES) return kept;
    if (most > 0) continue;
    throw new CloudlessError(
      'exhausted',
      `the plan takes ${bytes} bytes without its steps, but a stored plan may take at most ${MAX_PLAN_BYTES}; put fewer changes into one plan`,
    );
  }
}

/** @throws kind `exhausted` when the changes could not be written in one transaction. */
export function checkSpecBytes(specs: readonly WorkloadSpec[]): void {
  const bytes = specs.reduce((sum, spec) => sum + toBinary(WorkloadSpecSchema, spec).length, 0);
  if (bytes <= MAX_SPEC_BYTES) return;
  throw new CloudlessError(
    'exhausted',
    `the new specs take ${bytes} bytes, but one plan may write at most ${MAX_SPEC_BYTES}; put fewer changes into a plan`,
  );
}

/**
 * Hashes the complete predicted effect of plans. Scores are excluded, because they decide nothing
 * after the choice of the node.
 */
export function computeOutcomeHash(plans: readonly WorkloadPlan[]): Uint8Array {
  const hash = createHash('sha256');
  for (const plan of plans) {
    hash.update(
      toBinary(WorkloadPlanSchema, create(WorkloadPlanSchema, { ...plan, placements: [] })),
    );
    hash.update(JSON.stringify(plan.placements.map(({ nodeId }) => nodeId)));
  }
  return hash.digest();
}

/** Size and age of a stored plan. */
export interface StoredPlanSize {
  readonly id: string;
  readonly revision: bigint;
  readonly bytes: number;
}

/** Returns the ids of the plans to delete when a new plan is stored, oldest first. */
export function selectPlansToDelete(
  kept: readonly StoredPlanSize[],
  addedBytes: number,
): readonly string[] {
  let count = kept.length + 1;
  let bytes = kept.reduce((sum, plan) => sum + plan.bytes, addedBytes);
  const gone: string[] = [];
  for (const plan of [...kept].sort((a, b) => (a.revision < b.revision ? -1 : 1))) {
    if (gone.length >= MAX_DELETED || (count <= MAX_PLANS && bytes <= MAX_PLANS_BYTES)) break;
    gone.push(plan.id);
    count -= 1;
    bytes -= plan.bytes;
  }
  return gone;
}
