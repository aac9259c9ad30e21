import { createUsageFailure } from '../../call/failure.js';
import type { LocalInvocation } from '../../command-tree.js';
import { getTextOption } from '../options.js';

/**
 * Returns the number of `--version`; 0, the newest version, without the option.
 * @throws {@link CliFailure} with exit code 2 for another text than a number from 1.
 */
export function readVersion(invocation: LocalInvocation): number {
  const text = getTextOption(invocation, 'version');
  if (text === undefined) return 0;
  if (/^[1-9]\d{0,8}$/.test(text)) return Number(text);
  throw createUsageFailure(
    `--version: expected the number of a version, got ${JSON.stringify(text)}`,
  );
}
