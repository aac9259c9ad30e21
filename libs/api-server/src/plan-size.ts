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

/** A plan shows so many steps and placements of a workload; the figures cover all of them. */
const MAX_SHOWN = 200;
/**
 * What is kept of one plan. With the records that its execution writes it stays below the store's
 * limit of a transaction.
 */
const MAX_PLAN_BYTES = 500_000;
/**
 * The specs that its changes would leave. Each is written up to four times: workload, version with
 * its template, and the answer.
 */
const MAX_SPEC_BYTES = 100_000;

/** More push out the oldest: whoever makes so many in an hour does not mean to execute them. */
const MAX_PLANS = 1_000;
/** All plans together; they are in memory too. */
const MAX_PLANS_BYTES = 64 * 1024 * 1024;
/** With the plan itself they stay below the 100 writes of a transaction; the next plan goes on. */
const MAX_DROPPED = 50;

/** A plan of one workload, cut to what is shown. */
export function shownPlan(plan: WorkloadPlan, most: number = MAX_SHOWN): WorkloadPlan {
  const { steps, placements } = plan;
  if (steps.length <= most && placements.length <= most) return plan;
  return create(WorkloadPlanSchema, {
    ...plan,
    steps: steps.slice(0, most),
    placements: placements.slice(0, most),
  });
}

/**
 * A plan, cut to what is kept: the larger it is, the fewer of its steps.
 * @throws kind `exhausted` when it is too large without any.
 */
export function keptPlan(plan: Plan): Plan {
  for (let most = MAX_SHOWN; ; most = Math.floor(most / 2)) {
    const kept = create(PlanSchema, {
      ...plan,
      workloads: plan.workloads.map((one) => shownPlan(one, most)),
    });
    const bytes = toBinary(PlanSchema, kept).length;
    if (bytes <= MAX_PLAN_BYTES) return kept;
    if (most > 0) continue;
    throw new CloudlessError(
      'exhausted',
      `the plan takes ${bytes} bytes without its steps, and at most ${MAX_PLAN_BYTES} are kept of one; put fewer changes into a plan`,
    );
  }
}

/** @throws kind `exhausted` when the changes could not be written in one transaction. */
export function checkSpecBytes(specs: readonly WorkloadSpec[]): void {
  const bytes = specs.reduce((sum, spec) => sum + toBinary(WorkloadSpecSchema, spec).length, 0);
  if (bytes <= MAX_SPEC_BYTES) return;
  throw new CloudlessError(
    'exhausted',
    `the specs that the changes leave take ${bytes} bytes, and one plan writes at most ${MAX_SPEC_BYTES}; put fewer changes into a plan`,
  );
}

/**
 * A digest of all that plans say will become of their workloads; scores, which no one decides by,
 * are not part of it.
 */
export function outcomeOf(plans: readonly WorkloadPlan[]): Uint8Array {
  const hash = createHash('sha256');
  for (const plan of plans) {
    hash.update(
      toBinary(WorkloadPlanSchema, create(WorkloadPlanSchema, { ...plan, placements: [] })),
    );
    hash.update(JSON.stringify(plan.placements.map(({ nodeId }) => nodeId)));
  }
  return hash.digest();
}

/** A plan that is kept. */
export interface KeptPlan {
  readonly id: string;
  readonly revision: bigint;
  readonly bytes: number;
}

/** Those that one more plan pushes out, the oldest first. */
export function plansToDrop(kept: readonly KeptPlan[], addedBytes: number): readonly string[] {
  let count = kept.length + 1;
  let bytes = kept.reduce((sum, plan) => sum + plan.bytes, addedBytes);
  const gone: string[] = [];
  for (const plan of [...kept].sort((a, b) => (a.revision < b.revision ? -1 : 1))) {
    if (gone.length >= MAX_DROPPED || (count <= MAX_PLANS && bytes <= MAX_PLANS_BYTES)) break;
    gone.push(plan.id);
    count -= 1;
    bytes -= plan.bytes;
  }
  return gone;
}
