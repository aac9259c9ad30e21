import { create } from '@bufbuild/protobuf';
import {
  PolicySpec_Action as Action,
  PolicyVerdictSchema,
  PolicyVerdict_Decision as Decision,
  PolicyViolationSchema,
  type PolicyVerdict,
  type PolicyViolation as ViolationMessage,
} from '@cloudless/api';
import type { PolicySubject, PolicyViolation, Verdict } from '@cloudless/policy';

/** Violations of each kind that a verdict lists at most. */
const MAX_LISTED = 64;
/** Longest text of a value or of what is allowed, characters. */
const MAX_TEXT = 300;

/** Builds the API message of a verdict. */
export function presentVerdict(
  { namespace, name }: Pick<PolicySubject, 'namespace' | 'name'>,
  { decision, policy = '', byDefault, violations, audit }: Verdict,
): PolicyVerdict {
  return create(PolicyVerdictSchema, {
    ...{ namespace, name, policy, byDefault, decision: Decision[decision] },
    violations: violations.slice(0, MAX_LISTED).map(presentViolation),
    audit: audit.slice(0, MAX_LISTED).map(presentViolation),
    totalViolations: violations.length + audit.length,
  });
}

/** Builds the API message of a violation. */
export function presentViolation(violation: PolicyViolation): ViolationMessage {
  const { policy, rule, action, field, found, allowed, failed } = violation;
  return create(PolicyViolationSchema, {
    ...{ policy, rule, field, failed, action: Action[action] },
    value: cut(found),
    allowed: cut(allowed),
  });
}

function cut(text: string): string {
  return text.length <= MAX_TEXT ? text : `${text.slice(0, MAX_TEXT)}…`;
}
