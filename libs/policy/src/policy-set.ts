import { errorMessageOf, InvalidInputError } from '@cloudless/base';
import type { CompiledPolicy, CompiledRule } from './compile-policy.js';
import type { Finding, PolicySubject, PolicyViolation, Verdict } from './model.js';

/** Policies that are evaluated together. */
export interface PolicySet {
  /** Enabled ALLOW and DENY policies: groups of equal priority, the highest first. */
  readonly deciding: readonly (readonly CompiledPolicy[])[];
  /** Enabled AUDIT policies. */
  readonly auditing: readonly CompiledPolicy[];
  readonly defaultDecision: Verdict['decision'];
}

/**
 * Orders policies for evaluation. The order of the input has no effect.
 * @param defaultDecision - The decision about workloads that no ALLOW or DENY policy selects.
 * @throws {@link InvalidInputError} when two policies have the same name.
 */
export function createPolicySet(
  policies: readonly CompiledPolicy[],
  defaultDecision: Verdict['decision'],
): PolicySet {
  const names = new Set<string>();
  for (const { name } of policies) {
    if (names.has(name))
      throw new InvalidInputError([{ field: 'name', message: `two policies are named ${name}` }]);
    names.add(name);
  }
  const enabled = policies
    .filter((policy) => policy.enabled)
    .sort((left, right) => right.priority - left.priority || (left.name < right.name ? -1 : 1));
  const groups = new Map<number, CompiledPolicy[]>();
  for (const policy of enabled) {
    if (policy.action === 'AUDIT') continue;
    const group = groups.get(policy.priority);
    if (group === undefined) groups.set(policy.priority, [policy]);
    else group.push(policy);
  }
  const auditing = enabled.filter(({ action }) => action === 'AUDIT');
  return { deciding: [...groups.values()], auditing, defaultDecision };
}

/**
 * Decides about a workload. A policy selects a workload when it is for its namespace and the
 * conditions of at least one rule are met; only those rules count. From the highest priority to the
 * lowest:
 *
 * 1. A violated DENY policy denies. So does a rule of an ALLOW or DENY policy that cannot be
 *    evaluated.
 * 2. Otherwise an ALLOW policy whose rules are all satisfied allows.
 *
 * When no policy has decided: a workload that ALLOW policies select, and none of them allows, is
 * denied; a workload that only DENY policies select is allowed; for all others the default decides.
 *
 * AUDIT policies only report. Never throws.
 */
export function evaluatePolicies(set: PolicySet, subject: PolicySubject): Verdict {
  const audit = set.auditing.length === 0 ? NONE : evaluateAudit(set.auditing, subject);
  const unmet: PolicyViolation[] = [];
  let isSelected = false;
  for (const group of set.deciding) {
    const denials: PolicyViolation[] = [];
    let allowedBy: string | undefined;
    for (const policy of group) {
      const violations = judge(policy, subject);
      if (violations === undefined) continue;
      isSelected = true;
      if (policy.action === 'DENY') denials.push(...violations);
      else if (violations.length === 0) allowedBy ??= policy.name;
      else {
        denials.push(...violations.filter(({ failed }) => failed));
        unmet.push(...violations);
      }
    }
    if (denials.length > 0) return deny(denials, audit);
    if (allowedBy !== undefined)
      return { decision: 'ALLOW', policy: allowedBy, byDefault: false, violations: NONE, audit };
  }
  if (unmet.length > 0) return deny(unmet, audit);
  const decision = isSelected ? 'ALLOW' : set.defaultDecision;
  return { decision, byDefault: !isSelected, violations: NONE, audit };
}

const NONE: readonly PolicyViolation[] = [];

function deny(violations: readonly PolicyViolation[], audit: readonly PolicyViolation[]): Verdict {
  const [first] = violations;
  const isOnePolicy = violations.every(({ policy }) => policy === first?.policy);
  return {
    decision: 'DENY',
    ...(isOnePolicy && first !== undefined ? { policy: first.policy } : {}),
    byDefault: false,
    violations,
    audit,
  };
}

function evaluateAudit(
  policies: readonly CompiledPolicy[],
  subject: PolicySubject,
): readonly PolicyViolation[] {
  return policies.flatMap((policy) => judge(policy, subject) ?? NONE);
}

/** Returns the violations of a policy, or undefined when the policy does not select the workload. */
function judge(
  policy: CompiledPolicy,
  subject: PolicySubject,
): readonly PolicyViolation[] | undefined {
  if (policy.namespace !== '*' && policy.namespace !== subject.namespace) return undefined;
  let violations: PolicyViolation[] | undefined;
  for (const rule of policy.rules) {
    const result = judgeRule(rule, subject);
    if (result === undefined) continue;
    violations ??= [];
    const { findings, failed } = result;
    for (const finding of findings)
      violations.push({
        policy: policy.name,
        rule: rule.name,
        action: policy.action,
        failed,
        ...finding,
      });
  }
  return violations;
}

interface RuleResult {
  readonly findings: readonly Finding[];
  readonly failed: boolean;
}

const PASSED: RuleResult = { findings: [], failed: false };

/** Returns undefined when the rule does not apply. An error is a violation, also in a condition. */
function judgeRule(rule: CompiledRule, subject: PolicySubject): RuleResult | undefined {
  try {
    for (const isMet of rule.conditions) if (!isMet(subject)) return undefined;
    const findings = rule.check(subject);
    return findings.length === 0 ? PASSED : { findings, failed: false };
  } catch (error) {
    const finding = {
      field: 'spec',
      found: `a workload for which the rule fails: ${errorMessageOf(error)}`,
      allowed: 'a workload for which the rule can be evaluated',
    };
    return { findings: [finding], failed: true };
  }
}

/**
 * Formats a violation: `policy "registries", rule "ours": spec.image is "nginx"; allowed is an image
 * from registry.example`.
 */
export function formatViolation({ policy, rule, field, found, allowed }: PolicyViolation): string {
  return `policy "${policy}", rule "${rule}": ${field} is ${found}; allowed is ${allowed}`;
}
