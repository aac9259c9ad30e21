import { create } from '@bufbuild/protobuf';
import {
  PlanWarningSchema,
  PlanWarning_Kind as Kind,
  WorkloadPlanSchema,
  type PlanWarning,
  type WorkloadPlan,
} from '@cloudless/api';
import { formatViolation, type PolicyViolation } from '@cloudless/policy';
import type { AdmittedChange } from '../policy/policy-admission.js';

/** Violations of each kind that the plan of one workload lists at most. */
const MAX_LISTED = 16;
/** Longest warning, characters. */
const MAX_TEXT = 600;

/**
 * Adds the violations of AUDIT policies, and the violations that an override lets through, to the
 * warnings of a plan. They are no part of the outcome that ExecutePlan compares: the policies of that
 * moment decide again.
 * @param admitted - Undefined for a change that policies do not judge.
 */
export function withPolicyWarnings(
  plan: WorkloadPlan,
  admitted: AdmittedChange | undefined,
): WorkloadPlan {
  if (admitted === undefined) return plan;
  const added = [
    ...listWarnings(Kind.POLICY_OVERRIDDEN, 'overridden', admitted.overridden),
    ...listWarnings(Kind.POLICY_AUDIT, 'AUDIT', admitted.audit),
  ];
  if (added.length === 0) return plan;
  return create(WorkloadPlanSchema, {
    ...plan,
    warnings: [...plan.warnings, ...added.map(({ message }) => message)],
    warningDetails: [...plan.warningDetails, ...added],
  });
}

/** Returns a plan without the warnings of {@link withPolicyWarnings}. */
export function withoutPolicyWarnings(plan: WorkloadPlan): WorkloadPlan {
  const warningDetails = plan.warningDetails.filter(
    ({ kind }) => kind !== Kind.POLICY_AUDIT && kind !== Kind.POLICY_OVERRIDDEN,
  );
  if (warningDetails.length === plan.warningDetails.length) return plan;
  return create(WorkloadPlanSchema, {
    ...plan,
    warnings: warningDetails.map(({ message }) => message),
    warningDetails,
  });
}

/** @param word - The word before the policy: `AUDIT policy "limits", rule …`. */
function listWarnings(
  kind: Kind,
  word: string,
  violations: readonly PolicyViolation[],
): readonly PlanWarning[] {
  const texts = violations
    .slice(0, MAX_LISTED)
    .map((violation) => cut(`${word} ${formatViolation(violation)}`));
  const more = violations.length - texts.length;
  if (more > 0) texts.push(`${more} more violations of ${word} policies`);
  return texts.map((message) => create(PlanWarningSchema, { kind, message }));
}

function cut(text: string): string {
  return text.length <= MAX_TEXT ? text : `${text.slice(0, MAX_TEXT)}…`;
}
