import {
  CONDITION_OPERATORS,
  LIMITS,
  type ConditionOperator,
  type ConditionValue,
  type PolicySubject,
} from '../model.js';
import { isRawObject, show, type Report } from '../rules/config-reader.js';
import { resolveFieldPath, type FieldKind, type FieldPath } from './field-path.js';

/** Returns true when the condition is met. */
export type ConditionCheck = (subject: PolicySubject) => boolean;

const NEVER_MET: ConditionCheck = () => false;

/**
 * Checks and prepares a condition from outside.
 * @param path - Path of the condition, such as `rules[0].conditions[1]`.
 * @returns A check that is never met when a problem was reported.
 */
export function compileCondition(raw: unknown, path: string, report: Report): ConditionCheck {
  if (!isRawObject(raw)) {
    report({ field: path, message: 'must have the fields field, operator and value' });
    return NEVER_MET;
  }
  const { field, operator, value, ...rest } = raw;
  for (const key of Object.keys(rest))
    report({
      field: `${path}.${key}`,
      message: 'unknown field; allowed are field, operator, value',
    });
  const target = resolveFieldPath(typeof field === 'string' ? field : '');
  if ('problem' in target) report({ field: `${path}.field`, message: target.problem });
  const isKnown = CONDITION_OPERATORS.includes(operator as ConditionOperator);
  if (!isKnown) {
    const message = `${show(operator)} is not an operator; use ${CONDITION_OPERATORS.join(', ')}`;
    report({ field: `${path}.operator`, message });
  }
  if ('problem' in target || !isKnown) return NEVER_MET;
  const comparison = operator as ConditionOperator;
  const problem = findOperatorProblem(comparison, target);
  if (problem !== undefined) {
    report({ field: `${path}.operator`, message: problem });
    return NEVER_MET;
  }
  const valueProblem = findValueProblem(comparison, target, value);
  if (valueProblem !== undefined) {
    report({ field: `${path}.value`, message: valueProblem });
    return NEVER_MET;
  }
  return createCheck(comparison, target, value);
}

const PRESENCE: readonly string[] = ['EXISTS', 'NOT_EXISTS'];
const SETS: readonly string[] = ['IN', 'NOT_IN'];
const ORDER: readonly string[] = ['GREATER_THAN', 'LESS_THAN'];
const PARTS: readonly string[] = ['STARTS_WITH', 'ENDS_WITH', 'CONTAINS'];

function findOperatorProblem(operator: ConditionOperator, field: FieldKind): string | undefined {
  if (PRESENCE.includes(operator)) return undefined;
  if (field.isList)
    return operator === 'CONTAINS'
      ? undefined
      : 'the field is a list; use CONTAINS, EXISTS or NOT_EXISTS';
  if (ORDER.includes(operator) && field.kind !== 'number')
    return `${operator} compares numbers, and the field is a ${field.kind}`;
  if (PARTS.includes(operator) && field.kind !== 'text')
    return `${operator} compares texts, and the field is a ${field.kind}`;
  return undefined;
}

function findValueProblem(
  operator: ConditionOperator,
  field: FieldKind,
  value: unknown,
): string | undefined {
  if (PRESENCE.includes(operator))
    return value === undefined ? undefined : `${operator} has no value; leave value out`;
  if (!SETS.includes(operator)) return findItemProblem(field, value);
  if (!Array.isArray(value) || value.length === 0 || value.length > LIMITS.items)
    return `${operator} needs a list of 1 to ${LIMITS.items} values`;
  return value.map((item) => findItemProblem(field, item)).find((item) => item !== undefined);
}

function findItemProblem({ kind, names }: FieldKind, value: unknown): string | undefined {
  switch (kind) {
    case 'text':
      return typeof value === 'string' && value.length <= LIMITS.textLength
        ? undefined
        : `${show(value)} is not a text of at most ${LIMITS.textLength} characters`;
    case 'number':
      return Number.isSafeInteger(value) ? undefined : `${show(value)} is not a whole number`;
    case 'boolean':
      return typeof value === 'boolean' ? undefined : `${show(value)} is not true or false`;
    case 'enum':
      return names?.includes(value as string) === true
        ? undefined
        : `${show(value)} is not a value of the field; use ${names?.join(', ')}`;
  }
}

function createCheck(
  operator: ConditionOperator,
  field: FieldPath,
  value: unknown,
): ConditionCheck {
  const { read, isSet } = field;
  const set = new Set(Array.isArray(value) ? (value as unknown[]) : [value]);
  const text = value as string;
  switch (operator) {
    case 'EXISTS':
      return isSet;
    case 'NOT_EXISTS':
      return (subject) => !isSet(subject);
    case 'EQUALS':
    case 'IN':
      return (subject) => set.has(read(subject));
    case 'NOT_EQUALS':
    case 'NOT_IN':
      return (subject) => !set.has(read(subject));
    case 'GREATER_THAN':
      return (subject) => testNumber(read(subject), (found) => found > (value as number));
    case 'LESS_THAN':
      return (subject) => testNumber(read(subject), (found) => found < (value as number));
    case 'STARTS_WITH':
      return (subject) => testText(read(subject), (found) => found.startsWith(text));
    case 'ENDS_WITH':
      return (subject) => testText(read(subject), (found) => found.endsWith(text));
    case 'CONTAINS':
      return (subject) => contains(read(subject), value as ConditionValue);
  }
}

/** Returns false for a value that is no number, such as that of an absent field. */
function testNumber(found: unknown, test: (found: number) => boolean): boolean {
  return typeof found === 'number' && test(found);
}

/** Returns false for a value that is no text, such as that of an absent field. */
function testText(found: unknown, test: (found: string) => boolean): boolean {
  return typeof found === 'string' && test(found);
}

function contains(found: unknown, value: ConditionValue): boolean {
  if (Array.isArray(found)) return found.includes(value);
  return typeof found === 'string' && found.includes(String(value));
}
