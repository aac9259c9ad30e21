import { parseArgs, type ParseArgsConfig } from 'node:util';

type FlagOptions = NonNullable<ParseArgsConfig['options']>;
type FlagValues<Flags extends FlagOptions> = ReturnType<
  typeof parseArgs<{ args: string[]; options: Flags }>
>['values'];

/** What is wrong with the flags. */
export class UsageError extends Error {}

/**
 * Reads the values of flags.
 * @throws {@link UsageError} for an unknown flag.
 */
export function readFlags<const Flags extends FlagOptions>(
  args: readonly string[],
  options: Flags,
): FlagValues<Flags> {
  try {
    return parseArgs({ args: [...args], options }).values;
  } catch (reason) {
    throw new UsageError(String((reason as Error).message));
  }
}

/**
 * Reads the number of a flag.
 * @param text - Value of the flag; undefined: the fallback holds.
 * @throws {@link UsageError} for a number out of its range.
 */
export function readNumber(
  name: string,
  text: string | undefined,
  fallback: number,
  [min, max]: readonly [min: number, max: number],
): number {
  const value = text === undefined ? fallback : Number(text);
  if (!(value >= min && value <= max))
    throw new UsageError(`--${name} ${text}: give a number from ${min} to ${max}`);
  return value;
}
