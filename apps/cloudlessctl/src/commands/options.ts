import { createUsageFailure } from '../call/failure.js';
import type { Invocation } from '../command-tree.js';

/** Returns the value of an option; undefined when it was not given. */
export function getTextOption({ options }: Invocation, name: string): string | undefined {
  const value = options[name];
  return typeof value === 'string' ? value : undefined;
}

/** Returns the values of a repeatable option. */
export function getListOption({ options }: Invocation, name: string): readonly string[] {
  const value = options[name];
  return Array.isArray(value) ? value.map(String) : [];
}

/** Returns true when a flag was given. */
export function hasFlag({ options }: Invocation, name: string): boolean {
  return options[name] === true;
}

/**
 * Requires operands that are optional for commander because another option may replace them.
 * @throws {@link CliFailure} with the message that commander has for a missing argument.
 */
export function requireOperands(
  { operands, wordsAfterSeparator }: Invocation,
  ...names: readonly string[]
): void {
  const missing = names[operands.length];
  if (missing !== undefined && wordsAfterSeparator === undefined)
    throw createUsageFailure(`missing required argument '${missing}'`);
}

/**
 * Returns the operand at `index`. Commander has checked the number of operands, but counts words
 * after `--` too.
 * @throws {@link CliFailure} when the operand is missing.
 */
export function requireOperand({ operands }: Invocation, index: number, name: string): string {
  const value = operands[index];
  if (value === undefined)
    throw createUsageFailure(`the ${name} is missing: only a command may follow --`);
  return value;
}

/**
 * Returns the words after `--`.
 * @param names - Number of operands before `--`.
 * @throws {@link CliFailure} when there are more operands than `names`, with an example of the
 *   right form.
 */
export function getCommandAfterSeparator(
  { operands, wordsAfterSeparator }: Invocation,
  names: number,
  usage: string,
): readonly string[] {
  if (operands.length > names) {
    throw createUsageFailure(
      `unexpected ${operands
        .slice(names)
        .map((word) => JSON.stringify(word))
        .join(' ')}: put the command after --, for example: ${usage}`,
    );
  }
  return wordsAfterSeparator ?? [];
}

/**
 * Returns the only name of a watch; undefined without a name.
 * @param what - Kind of the object, for the error message.
 * @throws {@link CliFailure} when there are several names.
 */
export function requireAtMostOne(names: readonly string[], what: string): string | undefined {
  if (names.length > 1)
    throw createUsageFailure(`--watch takes at most one ${what}, got ${names.length}`);
  return names[0];
}
