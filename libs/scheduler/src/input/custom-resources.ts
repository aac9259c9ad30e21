import type { Problems } from './problems.js';

/**
 * Amounts of custom resources by name, such as `{ 'example.com/license': 2 }`. Whole numbers of at
 * least 0; an absent name is 0.
 */
export type CustomAmounts = Readonly<Record<string, number>>;

/** No custom resources. Shared, so that most replicas are recognised by identity. */
export const NO_CUSTOM: CustomAmounts = Object.freeze({});

/** Longest name of a custom resource. */
const MAX_NAME = 253;

/** Returns the amount of a name; 0 for an absent name, also for one such as `constructor`. */
export function customAmount(amounts: CustomAmounts, name: string): number {
  return Object.hasOwn(amounts, name) ? (amounts[name] ?? 0) : 0;
}

/** Removes amounts of 0 and sorts the names, so that equal amounts have equal texts. */
export function toCustomAmounts(amounts: CustomAmounts | undefined): CustomAmounts {
  if (amounts === undefined || amounts === NO_CUSTOM) return NO_CUSTOM;
  const entries = Object.entries(amounts).filter(([, amount]) => amount !== 0);
  if (entries.length === 0) return NO_CUSTOM;
  return Object.fromEntries(entries.sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** Returns `a` plus `factor` times `b`. */
export function addCustom(a: CustomAmounts, b: CustomAmounts, factor: 1 | -1): CustomAmounts {
  if (b === NO_CUSTOM) return a;
  const sums = new Map(Object.entries(a));
  for (const [name, amount] of Object.entries(b))
    sums.set(name, (sums.get(name) ?? 0) + factor * amount);
  return toCustomAmounts(Object.fromEntries(sums));
}

/** Replaces negative amounts by 0. */
export function clampCustom(a: CustomAmounts): CustomAmounts {
  if (a === NO_CUSTOM) return a;
  return toCustomAmounts(
    Object.fromEntries(Object.entries(a).map(([name, amount]) => [name, Math.max(0, amount)])),
  );
}

/** Compares two results of {@link toCustomAmounts}. */
export function areEqualCustom(a: CustomAmounts, b: CustomAmounts): boolean {
  if (a === b) return true;
  const names = Object.keys(a);
  return (
    names.length === Object.keys(b).length &&
    names.every((name) => a[name] === customAmount(b, name))
  );
}

/** Returns the names of which `need` exceeds the free amount, in alphabetical order. */
export function listCustomShortages(
  need: CustomAmounts,
  allocatable: CustomAmounts,
  allocated: CustomAmounts,
): readonly string[] {
  if (need === NO_CUSTOM) return [];
  return Object.entries(need)
    .filter(
      ([name, amount]) =>
        amount > 0 && customAmount(allocated, name) + amount > customAmount(allocatable, name),
    )
    .map(([name]) => name)
    .sort();
}

/** Adds a problem for each invalid name and each amount that is no whole number of at least 0. */
export function checkCustom(
  problems: Problems,
  path: string,
  amounts: CustomAmounts | undefined,
): void {
  if (amounts === undefined || amounts === NO_CUSTOM) return;
  for (const [name, amount] of Object.entries(amounts)) {
    const field = `${path}.custom[${JSON.stringify(name)}]`;
    if (name === '' || name.length > MAX_NAME)
      problems.add(field, `must have a name of 1 to ${MAX_NAME} characters`);
    problems.requireWholeNumber(field, amount, 0);
  }
}
