import { usageFailure } from '../failure.js';
import type { Invocation } from '../command-tree.js';

/** The text of an option, if given. */
export function textOption({ options }: Invocation, name: string): string | undefined {
  const value = options[name];
  return typeof value === 'string' ? value : undefined;
}

/** The texts of an option that may be repeated. */
export function listOption({ options }: Invocation, name: string): readonly string[] {
  const value = options[name];
  return Array.isArray(value) ? value.map(String) : [];
}

/** Whether a flag was given. */
export function flagOption({ options }: Invocation, name: string): boolean {
  return options[name] === true;
}

/** Collects the values of an option that may be repeated. */
export function collect(given: string, before: readonly string[] | undefined): readonly string[] {
  return [...(before ?? []), given];
}

/**
 * Refuses, as commander would, that operands are missing which a command needs unless an option
 * stands for them.
 */
export function requireOperands({ operands, rest }: Invocation, ...names: readonly string[]): void {
  const missing = names[operands.length];
  if (missing !== undefined && rest === undefined)
    throw usageFailure(`missing required argument '${missing}'`);
}

/** The operand at `index`; commander has checked that it is there. */
export function operand({ operands }: Invocation, index: number, name: string): string {
  const value = operands[index];
  if (value === undefined)
    throw usageFailure(`the ${name} is missing; put only a command after --`);
  return value;
}

/** The command after `--`; operands that look like one are refused with the right form. */
export function commandAfterSeparator(
  { operands, rest }: Invocation,
  names: number,
  usage: string,
): readonly string[] {
  if (operands.length > names) {
    throw usageFailure(
      `unexpected ${operands
        .slice(names)
        .map((word) => JSON.stringify(word))
        .join(' ')}: a command stands after --, as in: ${usage}`,
    );
  }
  return rest ?? [];
}
