import type { Command } from 'commander';
import type { LocalInvocation } from '../../command-tree.js';
import { createUsageFailure } from '../../call/failure.js';
import { getTextOption } from '../options.js';

/** Lengths of a reason that the API accepts, characters. */
const REASON_LENGTH = { min: 8, max: 512 };

/** Adds `--override-policies`. */
export function addOverrideOption(command: Command): Command {
  return command.option(
    '--override-policies <reason>',
    'make the change even if policies deny it, and record the reason; for admins of the whole cluster',
  );
}

/** The override of policies as the calls accept it. Empty: policies decide. */
export interface OverrideFields {
  readonly policyOverride?: { readonly reason: string };
}

/**
 * Reads `--override-policies`.
 * @throws {@link CliFailure} with exit code 2 for a reason that the API does not accept.
 */
export function readOverride(invocation: LocalInvocation): OverrideFields {
  const reason = getTextOption(invocation, 'overridePolicies');
  if (reason === undefined) return {};
  const { min, max } = REASON_LENGTH;
  if ([...reason].length < min || [...reason].length > max || !/^\S[^\r\n]*$/.test(reason))
    throw createUsageFailure(
      `--override-policies: give the reason in one line of ${min} to ${max} characters, for the audit log`,
    );
  return { policyOverride: { reason } };
}
