import type { Problems } from './problems.js';

/** Labels of a node or a workload. */
export type Labels = Readonly<Record<string, string>>;

/**
 * `In`, `NotIn`: the value is, or is not, among `values`. `Gt`, `Lt`: the value is a whole number
 * above, or below, the number in `values`. `Exists`, `DoesNotExist`: the label exists, or does not.
 */
export type LabelOperator = 'In' | 'NotIn' | 'Exists' | 'DoesNotExist' | 'Gt' | 'Lt';

/**
 * One condition on a label. When the label is missing, `NotIn` and `DoesNotExist` hold and the
 * other operators do not. `Gt` and `Lt` do not hold for a value that is not a whole number.
 */
export interface LabelRequirement {
  readonly key: string;
  readonly operator: LabelOperator;
  /**
   * At least one for `In` and `NotIn`, exactly one whole number for `Gt` and `Lt`, none for the
   * others.
   */
  readonly values?: readonly string[];
}

/** Labels as a map. A plain object would also contain inherited keys such as `constructor`. */
export type LabelMap = ReadonlyMap<string, string>;

export function toLabelMap(labels: Labels | undefined): LabelMap {
  return new Map(Object.entries(labels ?? {}));
}

/** Returns true when every requirement holds, or when there are none. */
export function matchesAll(requirements: readonly LabelRequirement[], labels: LabelMap): boolean {
  return requirements.every((requirement) => matches(requirement, labels));
}

/** Returns true when the requirement holds. */
export function matches(requirement: LabelRequirement, labels: LabelMap): boolean {
  return matchesValue(requirement, labels.get(requirement.key));
}

/** Returns true when the requirement holds for the value of its label, undefined when missing. */
export function matchesValue(
  { operator, values = [] }: LabelRequirement,
  value: string | undefined,
): boolean {
  switch (operator) {
    case 'In':
      return value !== undefined && values.includes(value);
    case 'NotIn':
      return value === undefined || !values.includes(value);
    case 'Exists':
      return value !== undefined;
    case 'DoesNotExist':
      return value === undefined;
    case 'Gt':
      return isWhole(value) && BigInt(value) > BigInt(values[0] ?? 0);
    case 'Lt':
      return isWhole(value) && BigInt(value) < BigInt(values[0] ?? 0);
  }
}

/** Formats a requirement for people: `disk in (nvme, ssd)`, `disk exists`, `cores > 8`. */
export function describeRequirement({ key, operator, values = [] }: LabelRequirement): string {
  const list = `(${[...values].sort().join(', ')})`;
  const texts: Record<LabelOperator, string> = {
    In: `${key} in ${list}`,
    NotIn: `${key} not in ${list}`,
    Exists: `${key} exists`,
    DoesNotExist: `${key} does not exist`,
    Gt: `${key} > ${values.join()}`,
    Lt: `${key} < ${values.join()}`,
  };
  return texts[operator];
}

/** Formats requirements for people in alphabetical order; `anything` when there are none. */
export function describeRequirements(requirements: readonly LabelRequirement[]): string {
  return requirements.length === 0
    ? 'anything'
    : requirements.map(describeRequirement).sort().join(', ');
}

/** Adds a problem for each requirement whose values do not fit its operator. */
export function checkRequirements(
  problems: Problems,
  path: string,
  requirements: readonly LabelRequirement[],
): void {
  requirements.forEach(({ key, operator, values = [] }, index) => {
    const field = `${path}[${index}]`;
    problems.requireNotEmpty(`${field}.key`, key);
    problems.requireOneOf(`${field}.operator`, operator, [
      'In',
      'NotIn',
      'Exists',
      'DoesNotExist',
      'Gt',
      'Lt',
    ]);
    const needed = findNeededValues(operator, values);
    if (needed !== undefined) problems.add(`${field}.values`, `${operator} needs ${needed}`);
  });
}

/** Describes the values that an operator needs; undefined when `values` are valid. */
function findNeededValues(operator: LabelOperator, values: readonly string[]): string | undefined {
  if (operator === 'In' || operator === 'NotIn')
    return values.length === 0 ? 'at least one value' : undefined;
  if (operator === 'Gt' || operator === 'Lt')
    return values.length === 1 && isWhole(values[0]) ? undefined : 'exactly one whole number';
  return values.length === 0 ? undefined : 'no values';
}

function isWhole(text: string | undefined): text is string {
  return text !== undefined && /^-?\d+$/.test(text);
}
