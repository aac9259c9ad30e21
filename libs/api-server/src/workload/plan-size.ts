import { createHash } from 'node:crypto';
import { create, toBinary } from '@bufbuild/protobuf';
import {
  NodePlanSchema,
  PlanSchema,
  WorkloadPlanSchema,
  WorkloadSpecSchema,
  type NodePlan,
  type Plan,
  type WorkloadPlan,
  type WorkloadSpec,
} from '@cloudless/api';
import { CloudlessError } from '@cloudless/base';

/**
 * Steps and placements of one workload that a plan lists at most: more than a person reads.
 * `total_steps` and `total_placements` count all of them.
 */
const MAX_LISTED = 200;
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

/** Number of stored plans. A new plan beyond this number deletes the oldest plan. */
const MAX_PLANS = 1_000;
/** Size limit of all stored plans, which are also held in memory. */
const MAX_PLANS_BYTES = 64 * 1024 * 1024;
/**
 * Plans that the commit of a new plan deletes, so that the commit stays below the store's limit of
 * 100 writes in a transaction. The commit of the next plan deletes further ones.
 */
const MAX_DELETED = 50;

/**
 * Truncates the lists of steps and placements of the plan of one workload.
 * @param limit - Entries that each of the two lists keeps.
 */
export function truncateWorkloadPlan(plan: WorkloadPlan, limit: number = MAX_LISTED): WorkloadPlan {
  const { steps, placements } = plan;
  if (steps.length <= limit && placements.length <= limit) return plan;
  return create(WorkloadPlanSchema, {
    ...plan,
    steps: steps.slice(0, limit),
    placements: placements.slice(0, limit),
  });
}

/**
 * Truncates a plan to {@link MAX_PLAN_BYTES}: halves the number of listed steps and placements of
 * each workload until the plan fits.
 * @throws kind `exhausted` when the plan is too large without any step and placement.
 */
export function truncatePlan(plan: Plan): Plan {
  for (let limit = MAX_LISTED; ; limit = Math.floor(limit / 2)) {
    const truncated = create(PlanSchema, {
      ...plan,
      workloads: plan.workloads.map((workload) => truncateWorkloadPlan(workload, limit)),
    });
    const bytes = toBinary(PlanSchema, truncated).length;
    if (bytes <= MAX_PLAN_BYTES) return truncated;
    if (limit > 0) continue;
    throw new CloudlessError(
      'REQUEST_TOO_LARGE',
      `the plan takes ${bytes} bytes without its steps, but a stored plan may take at most ${MAX_PLAN_BYTES}; put fewer changes into one plan`,
    );
  }
}

/**
 * Checks that the new specs of a plan fit into the transaction of its execution.
 * @throws kind `exhausted` when the specs take more than {@link MAX_SPEC_BYTES} together.
 */
export function checkSpecBytes(specs: readonly WorkloadSpec[]): void {
  const bytes = specs.reduce((sum, spec) => sum + toBinary(WorkloadSpecSchema, spec).length, 0);
  if (bytes <= MAX_SPEC_BYTES) return;
  throw new CloudlessError(
    'REQUEST_TOO_LARGE',
    `the new specs take ${bytes} bytes, but one plan may write at most ${MAX_SPEC_BYTES}; put fewer changes into a plan`,
  );
}

/**
 * Hashes the complete predicted outcome of the changes of a plan, so that a later prediction can be
 * compared with it. Scores are excluded: only the chosen nodes matter.
 * @param plans - The plans of the workloads before they are truncated.
 * @param nodes - The plans of the nodes. Their number of replicas is excluded: where it matters,
 *   the moves or the warnings differ too.
 */
export function computeOutcomeHash(
  plans: readonly WorkloadPlan[],
  nodes: readonly NodePlan[] = [],
): Uint8Array {
  const hash = createHash('sha256');
  for (const plan of plans) {
    hash.update(
      toBinary(WorkloadPlanSchema, create(WorkloadPlanSchema, { ...plan, placements: [] })),
    );
    hash.update(JSON.stringify(plan.placements.map(({ nodeId }) => nodeId)));
  }
  for (const node of nodes)
    hash.update(toBinary(NodePlanSchema, create(NodePlanSchema, { ...node, replicas: 0 })));
  return hash.digest();
}

/** Size and age of a stored plan. */
export interface StoredPlanSize {
  readonly id: string;
  /** Revision of the last write of the plan: the smaller, the older. */
  readonly revision: bigint;
  readonly bytes: number;
}

/**
 * Returns the ids of the plans to delete when a new plan is stored, oldest first.
 * @param addedBytes - Size of the new plan.
 */
export function selectPlansToDelete(
  stored: readonly StoredPlanSize[],
  addedBytes: number,
): readonly string[] {
  let count = stored.length + 1;
  let bytes = stored.reduce((sum, plan) => sum + plan.bytes, addedBytes);
  const deletedIds: string[] = [];
  for (const plan of [...stored].sort((a, b) => (a.revision < b.revision ? -1 : 1))) {
    if (deletedIds.length >= MAX_DELETED || (count <= MAX_PLANS && bytes <= MAX_PLANS_BYTES)) break;
    deletedIds.push(plan.id);
    count -= 1;
    bytes -= plan.bytes;
  }
  return deletedIds;
}
