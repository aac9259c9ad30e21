import type { Command } from 'commander';
import type { JsonValue } from '@bufbuild/protobuf';
import type { Invocation } from '../command-tree.js';
import { createUsageFailure } from '../call/failure.js';
import { getTextOption } from './options.js';

/** A secret that a command has created, and what else the command prints. */
export interface CreatedSecret {
  readonly text: string;
  /** The object whose fields stand beside `text` in JSON or YAML. */
  readonly json: JsonValue;
  /** What was created, without the secret, for standard error. */
  readonly summary: string;
  /**
   * Returns the command that uses the secret, for standard error.
   * @param file - Path of the file with the secret.
   */
  next(file: string): string;
}

/** Adds the option with which a secret goes to a file. */
export function addSecretOptions(command: Command): Command {
  return command.option(
    '--output-file <file>',
    'write the text to a new file with mode 0600 instead of standard output',
  );
}

/**
 * Checks that `--output-file` does not exist, before the secret is created: a secret that cannot be
 * stored would be lost.
 * @throws {@link CliFailure} with exit code 2.
 */
export async function requireFreeOutputFile(invocation: Invocation): Promise<void> {
  const file = getTextOption(invocation, 'outputFile');
  if (file === undefined && invocation.session.settings.output === 'name')
    throw createUsageFailure('-o name does not show the text: add --output-file');
  if (file !== undefined && (await invocation.session.io.files.exists(file)))
    throw createUsageFailure(`--output-file: ${file} exists already; choose another file`);
}

/**
 * Prints a secret once: to `--output-file`, as a field of JSON or YAML, or alone on standard output,
 * so that a script can store it.
 */
export async function printSecret(
  invocation: Invocation,
  { text, json, summary, next }: CreatedSecret,
): Promise<void> {
  const { session } = invocation;
  const file = getTextOption(invocation, 'outputFile');
  if (file !== undefined) {
    await session.io.files.createSecret(file, `${text}\n`);
    if (session.isStructured) return session.printValue(withField(json, 'file', file));
    await session.printNotice(`${summary}; written to ${file}`);
    return session.printNotice(`next: ${next(file)}`);
  }
  if (session.isStructured) return session.printValue(withField(json, 'text', text));
  await session.print(`${text}\n`);
  await session.printNotice(summary);
  await session.printNotice('The text is not shown again; keep it secret.');
}

function withField(json: JsonValue, key: string, value: string): JsonValue {
  return { ...(json as Readonly<Record<string, JsonValue>>), [key]: value };
}
