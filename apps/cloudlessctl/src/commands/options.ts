import { createUsageFailure } from '../call/failure.js';
import type { LocalInvocation } from '../command-tree.js';

/**
 * Returns the value of an option; undefined when the option was not given.
 * @param name - Name of the option in camelCase.
 */
export function getTextOption({ options }: LocalInvocation, name: string): string | undefined {
  const value = options[name];
  return typeof value === 'string' ? value : undefined;
}

/** Returns the values of a repeatable option; empty when the option was not given. */
export function getListOption({ options }: LocalInvocation, name: string): readonly string[] {
  const value = options[name];
  return Array.isArray(value) ? value.map(String) : [];
}

/** Returns true when a flag was given. */
export function hasFlag({ options }: LocalInvocation, name: string): boolean {
  return options[name] === true;
}

/**
 * Checks that all operands are given. For commands that declare their operands as optional because
 * an option such as `--plan-id` can replace the operands.
 * @param names - Names of the operands, in order.
 * @throws {@link CliFailure} with the same message as the commander library for a missing argument.
 */
export function requireOperands(
  { operands, wordsAfterSeparator }: LocalInvocation,
  ...names: readonly string[]
): void {
  const missing = names[operands.length];
  if (missing !== undefined && wordsAfterSeparator === undefined)
    throw createUsageFailure(`missing required argument '${missing}'`);
}

/**
 * Returns the operand at `index`, from 0. The check of the commander library is not sufficient,
 * because commander also counts the words after `--` as operands.
 * @param name - Name of the operand, for the error message.
 * @throws {@link CliFailure} when the operand is missing.
 */
export function requireOperand({ operands }: LocalInvocation, index: number, name: string): string {
  const value = operands[index];
  if (value === undefined)
    throw createUsageFailure(`the ${name} is missing: only a command may follow --`);
  return value;
}

/**
 * Returns the words after `--`; empty when there are none.
 * @param operandCount - Number of operands before `--`.
 * @param usage - Example of a correct command line, for the error message.
 * @throws {@link CliFailure} when there are more operands than `operandCount`.
 */
export function getCommandAfterSeparator(
  { operands, wordsAfterSeparator }: LocalInvocation,
  operandCount: number,
  usage: string,
): readonly string[] {
  if (operands.length > operandCount) {
    throw createUsageFailure(
      `unexpected ${operands
        .slice(operandCount)
        .map((word) => JSON.stringify(word))
        .join(' ')}: put the command after --, for example: ${usage}`,
    );
  }
  return wordsAfterSeparator ?? [];
}

/**
 * Refuses `-o name` before a change whose result has no name.
 * @throws {@link CliFailure} with exit code 2.
 */
export function refuseNames({ settings }: LocalInvocation['session']): void {
  if (settings.output === 'name')
    throw createUsageFailure('--output name: the result of this command has no name');
}

/**
 * Returns the name that a command with `--watch` was given; undefined without a name.
 * @param kind - Kind of the named object, for the error message.
 * @throws {@link CliFailure} when several names were given.
 */
export function requireAtMostOneName(names: readonly string[], kind: string): string | undefined {
  if (names.length > 1)
    throw createUsageFailure(`--watch takes at most one ${kind}, got ${names.length}`);
  return names[0];
}
