import { errorMessageOf, InvalidInputError, type Violation } from '@cloudless/base';
import { compileCondition, type ConditionCheck } from './conditions/compile-condition.js';
import { EXPRESSION_LIMITS } from './expression/budget.js';
import { celEngine, type ExpressionEngine } from './expression/cel.js';
import { createExpressionCheck } from './expression/expression-rule.js';
import { LIMITS, type Finding, type PolicyAction } from './model.js';
import {
  ConfigReader,
  isRawObject,
  isWhole,
  show,
  type RawObject,
  type Report,
} from './rules/config-reader.js';
import type { RuleCheck } from './rules/rule-definition.js';
import { NATIVE_RULES, RULE_TYPES, type NativeRuleType } from './rules/rule-types.js';

/** A rule that is ready for evaluation. */
export interface CompiledRule {
  readonly name: string;
  readonly conditions: readonly ConditionCheck[];
  readonly check: RuleCheck;
}

/** A policy that is ready for evaluation. */
export interface CompiledPolicy {
  readonly name: string;
  readonly namespace: string;
  readonly enabled: boolean;
  readonly priority: number;
  readonly action: PolicyAction;
  readonly rules: readonly CompiledRule[];
}

/** Options of {@link compilePolicy}. */
export interface CompileOptions {
  /** Evaluates EXPRESSION rules. Default: {@link celEngine}. */
  readonly engine?: ExpressionEngine;
}

/** Form of the names of policies, rules and namespaces: a DNS label. */
const NAME = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;
const ACTIONS: readonly string[] = ['ALLOW', 'DENY', 'AUDIT'] satisfies PolicyAction[];
const POLICY_FIELDS: readonly string[] = [
  'name',
  'namespace',
  'enabled',
  'priority',
  'action',
  'rules',
];
const RULE_FIELDS: readonly string[] = ['name', 'type', 'config', 'conditions'];

/**
 * Checks a policy from outside (see `Policy` for its form), and prepares its evaluation. Also checks
 * policies that are not enabled.
 * @throws {@link InvalidInputError} with every problem, each with the path of the field, as in
 *   `rules[0].config.allowed[1]`, and what is allowed there.
 */
export function compilePolicy(
  raw: unknown,
  { engine = celEngine }: CompileOptions = {},
): CompiledPolicy {
  if (!isRawObject(raw))
    throw new InvalidInputError([{ field: '', message: 'a policy must be an object' }]);
  const violations: Violation[] = [];
  const report: Report = (violation) => violations.push(violation);
  checkFields(raw, POLICY_FIELDS, '', report);
  const head = readHead(raw, report);
  const rules = readRules(raw['rules'], engine, report);
  if (violations.length > 0) throw new InvalidInputError(violations);
  return { ...head, rules };
}

/** Reads the fields beside the rules. The types of the result hold when no problem was reported. */
function readHead(raw: RawObject, report: Report): Omit<CompiledPolicy, 'rules'> {
  const { name, namespace, enabled, priority, action } = raw;
  checkName(name, 'name', report);
  if (namespace !== '*') checkName(namespace, 'namespace', report, ', or * for all namespaces');
  if (typeof enabled !== 'boolean')
    report({ field: 'enabled', message: `${show(enabled)} is not true or false` });
  if (!isWhole(priority, 0, LIMITS.priority)) {
    const message = `${show(priority)} is not a whole number from 0 to ${LIMITS.priority}`;
    report({ field: 'priority', message });
  }
  if (!ACTIONS.includes(action as string)) {
    const message = `${show(action)} is not an action; use ${ACTIONS.join(', ')}`;
    report({ field: 'action', message });
  }
  return { name, namespace, enabled, priority, action } as Omit<CompiledPolicy, 'rules'>;
}

function readRules(raw: unknown, engine: ExpressionEngine, report: Report): CompiledRule[] {
  if (!Array.isArray(raw) || raw.length === 0 || raw.length > LIMITS.rules) {
    report({ field: 'rules', message: `must be a list of 1 to ${LIMITS.rules} rules` });
    return [];
  }
  const names = new Set<unknown>();
  return raw.flatMap((rule: unknown, index) => {
    const path = `rules[${index}]`;
    if (!isRawObject(rule)) {
      report({ field: path, message: `must have the fields ${RULE_FIELDS.join(', ')}` });
      return [];
    }
    checkFields(rule, RULE_FIELDS, `${path}.`, report);
    checkName(rule['name'], `${path}.name`, report);
    if (names.has(rule['name']))
      report({ field: `${path}.name`, message: `${show(rule['name'])} is used twice` });
    names.add(rule['name']);
    const conditions = readConditions(rule['conditions'], `${path}.conditions`, report);
    const check = readCheck(rule, path, engine, report);
    return check === undefined ? [] : [{ name: rule['name'] as string, conditions, check }];
  });
}

function readConditions(raw: unknown, path: string, report: Report): readonly ConditionCheck[] {
  if (raw === undefined) return [];
  if (!Array.isArray(raw) || raw.length > LIMITS.conditions) {
    report({ field: path, message: `must be a list of at most ${LIMITS.conditions} conditions` });
    return [];
  }
  return raw.map((condition, index) => compileCondition(condition, `${path}[${index}]`, report));
}

/**
 * Reads type and configuration of a rule.
 * @returns Undefined when a problem was reported.
 */
function readCheck(
  { type, config }: RawObject,
  path: string,
  engine: ExpressionEngine,
  report: Report,
): RuleCheck | undefined {
  if (!(RULE_TYPES as readonly unknown[]).includes(type)) {
    const message = `${show(type)} is not a type of rule; use ${RULE_TYPES.join(', ')}`;
    report({ field: `${path}.type`, message });
    return undefined;
  }
  if (!isRawObject(config)) {
    report({
      field: `${path}.config`,
      message: 'must be an object; {} when nothing is configured',
    });
    return undefined;
  }
  let isValid = true;
  const reader = new ConfigReader(config, `${path}.config`, (violation) => {
    isValid = false;
    report(violation);
  });
  const create =
    type === 'EXPRESSION'
      ? readExpression(reader, engine)
      : readNative(NATIVE_RULES[type as NativeRuleType] as AnyDefinition, reader);
  reader.finish();
  if (!isValid) return undefined;
  try {
    return create();
  } catch (error) {
    const field = type === 'EXPRESSION' ? `${path}.config.expression` : `${path}.config`;
    report({ field, message: errorMessageOf(error) });
    return undefined;
  }
}

function readExpression(reader: ConfigReader, engine: ExpressionEngine): () => RuleCheck {
  const maxBytes = EXPRESSION_LIMITS.sourceBytes;
  const config = {
    expression: '',
    ...reader.text('expression', { required: true, maxBytes }),
    ...reader.text('message'),
  };
  return () => createExpressionCheck(config, engine);
}

/** A definition whose type of configuration is not known here, only to the definition itself. */
interface AnyDefinition {
  readonly needsContainer: boolean;
  readonly read: (reader: ConfigReader) => unknown;
  create(config: unknown): RuleCheck;
}

function readNative(definition: AnyDefinition, reader: ConfigReader): () => RuleCheck {
  const config = definition.read(reader);
  return () => {
    const check = definition.create(config);
    if (!definition.needsContainer) return check;
    return (subject) => (subject.spec.image === '' ? IS_PROCESS : check(subject));
  };
}

/** Finding of every rule for containers about a process. */
const IS_PROCESS: readonly Finding[] = [
  {
    field: 'spec.image',
    found: 'a process, which runs on the node itself',
    allowed: 'a container (a workload with an image)',
  },
];

function checkFields(
  raw: RawObject,
  allowed: readonly string[],
  prefix: string,
  report: Report,
): void {
  for (const key of Object.keys(raw)) {
    if (allowed.includes(key)) continue;
    const message = `unknown field; allowed are ${allowed.join(', ')}`;
    report({ field: `${prefix}${key}`, message });
  }
}

function checkName(name: unknown, field: string, report: Report, others = ''): void {
  if (typeof name === 'string' && NAME.test(name)) return;
  const message = `${show(name)} is not a name of 1 to 63 lower-case letters, digits and hyphens${others}`;
  report({ field, message });
}
