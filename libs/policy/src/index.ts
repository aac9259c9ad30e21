export { compilePolicy } from './compile-policy.js';
export type { CompiledPolicy, CompiledRule, CompileOptions } from './compile-policy.js';
export { createPolicySet, evaluatePolicies, formatViolation } from './policy-set.js';
export type { PolicySet } from './policy-set.js';
export { DANGEROUS_CAPABILITIES, DEFAULT_POLICIES } from './default-policies.js';
export { CONDITION_OPERATORS, LIMITS } from './model.js';
export type {
  ConditionOperator,
  ConditionValue,
  EgressAllowed,
  EgressAllowedPort,
  Finding,
  IdRange,
  Policy,
  PolicyAction,
  PolicyCondition,
  PolicyRule,
  PolicySubject,
  PolicyViolation,
  RuleConfigs,
  RuleType,
  Verdict,
  VolumeType,
} from './model.js';
export { Budget, BudgetSpentError, EXPRESSION_LIMITS } from './expression/budget.js';
export { celEngine } from './expression/cel.js';
export type { Evaluate, ExpressionEngine } from './expression/cel.js';
export { compileGate } from './gate/compile-gate.js';
export type { CompiledGate, GateResult } from './gate/compile-gate.js';
export { GATE_FIGURES, STABLE_PREFIX } from './gate/gate-figures.js';
export type { GateFigure } from './gate/gate-figures.js';
