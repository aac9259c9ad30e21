import { InvalidInputError } from '@cloudless/base';

/** One condition on a set of labels. `notIn` is also true when the key is absent. */
export type LabelCondition =
  | { readonly kind: 'in'; readonly key: string; readonly values: readonly string[] }
  | { readonly kind: 'notIn'; readonly key: string; readonly values: readonly string[] }
  | { readonly kind: 'exists'; readonly key: string }
  | { readonly kind: 'absent'; readonly key: string };

/** Conditions that must all be true. An empty selector selects everything. */
export type LabelSelector = readonly LabelCondition[];

const KEY = '[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?';
const VALUE = '[A-Za-z0-9._-]*';
const WHOLE_VALUE = new RegExp(`^${VALUE}$`);
const SET = new RegExp(`^(${KEY})\\s+(in|notin)\\s*\\(([^()]*)\\)$`);
const EQUAL = new RegExp(`^(${KEY})\\s*(=|==|!=)\\s*(${VALUE})$`);
const EXISTS = new RegExp(`^(!?)\\s*(${KEY})$`);

/**
 * Parses `key=value`, `key!=value`, `key`, `!key`, `key in (a,b)` and `key notin (a,b)`, separated
 * by commas.
 * @param text - The selector. An empty text selects everything.
 * @param field - Path of the request field, for the error.
 * @throws {@link InvalidInputError} with the part that cannot be parsed.
 * @example
 * ```ts
 * matchesLabels(parseLabelSelector('app=web,tier!=test'), { app: 'web' }); // true
 * ```
 */
export function parseLabelSelector(text: string, field = 'label_selector'): LabelSelector {
  if (text.trim() === '') return [];
  return splitOutsideParentheses(text).map((part) => parseCondition(part.trim(), field));
}

function parseCondition(part: string, field: string): LabelCondition {
  const set = SET.exec(part);
  if (set?.[1] !== undefined && set[3] !== undefined) {
    const values = set[3].split(',').map((value) => value.trim());
    if (values.every((value) => WHOLE_VALUE.test(value)))
      return { kind: set[2] === 'in' ? 'in' : 'notIn', key: set[1], values };
  }
  const equal = EQUAL.exec(part);
  if (equal?.[1] !== undefined && equal[3] !== undefined) {
    return { kind: equal[2] === '!=' ? 'notIn' : 'in', key: equal[1], values: [equal[3]] };
  }
  const exists = EXISTS.exec(part);
  if (exists?.[2] !== undefined)
    return { kind: exists[1] === '!' ? 'absent' : 'exists', key: exists[2] };
  throw new InvalidInputError([
    {
      field,
      message: `cannot parse "${part}"; expected key=value, key!=value, key, !key, key in (a,b) or key notin (a,b)`,
    },
  ]);
}

/** Splits a text at the commas that are not within parentheses. */
function splitOutsideParentheses(text: string): string[] {
  const parts: string[] = [];
  let depth = 0;
  let start = 0;
  for (let index = 0; index < text.length; index += 1) {
    if (text[index] === '(') depth += 1;
    else if (text[index] === ')') depth -= 1;
    else if (text[index] === ',' && depth === 0) {
      parts.push(text.slice(start, index));
      start = index + 1;
    }
  }
  return [...parts, text.slice(start)];
}

/**
 * Returns true when every condition of the selector is true for the labels. As in Kubernetes,
 * `key!=value` is true when the key is absent.
 */
export function matchesLabels(
  selector: LabelSelector,
  labels: Readonly<Record<string, string>>,
): boolean {
  return selector.every((condition) => {
    const value = Object.hasOwn(labels, condition.key) ? labels[condition.key] : undefined;
    switch (condition.kind) {
      case 'in':
        return value !== undefined && condition.values.includes(value);
      case 'notIn':
        return value === undefined || !condition.values.includes(value);
      case 'exists':
        return value !== undefined;
      case 'absent':
        return value === undefined;
    }
  });
}
