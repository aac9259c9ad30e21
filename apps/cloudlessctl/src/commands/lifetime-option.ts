import { Option } from 'commander';
import type { Command } from 'commander';
import { createUsageFailure } from '../call/failure.js';
import type { LocalInvocation } from '../command-tree.js';
import { parseDurationOption } from '../config/settings.js';
import { getTextOption } from './options.js';

/** The time until a token expires, as given on the command line. */
export interface Lifetime {
  /** The option that was given, for messages. */
  readonly option: '--lifetime' | '--ttl';
  readonly text: string;
  /** Milliseconds, more than 0. */
  readonly ms: number;
}

/** Adds `--lifetime` to a command that creates a token. `--ttl` is accepted as another name. */
export function addLifetimeOption(command: Command, description: string): Command {
  return command
    .option('--lifetime <duration>', description)
    .addOption(new Option('--ttl <duration>', 'alias of --lifetime').hideHelp());
}

/**
 * Returns the lifetime of {@link addLifetimeOption}; undefined when it was not given.
 * @throws {@link CliFailure} with exit code 2 for an invalid duration, and for both names.
 */
export function readLifetime(invocation: LocalInvocation): Lifetime | undefined {
  const [lifetime, ttl] = [getTextOption(invocation, 'lifetime'), getTextOption(invocation, 'ttl')];
  if (lifetime !== undefined && ttl !== undefined)
    throw createUsageFailure('--lifetime and --ttl are the same; give one of the two');
  const [option, text] =
    lifetime === undefined ? (['--ttl', ttl] as const) : (['--lifetime', lifetime] as const);
  return text === undefined ? undefined : { option, text, ms: parseDurationOption(option, text) };
}
