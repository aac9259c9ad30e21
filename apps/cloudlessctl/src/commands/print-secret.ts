import type { Command } from 'commander';
import type { JsonValue } from '@bufbuild/protobuf';
import { errorCodeOf } from '@cloudless/base';
import type { Invocation } from '../command-tree.js';
import type { CliSession } from '../call/cli-session.js';
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
 * Creates a secret and prints the text once: to `--output-file`, as a field of JSON or YAML, or alone
 * on standard output, so that a script can store the text. The file is created before the secret,
 * because a secret that cannot be stored would be lost.
 * @param create - Creates the secret with a call.
 * @throws {@link CliFailure} with exit code 2 when the file exists or cannot be created.
 */
export async function createAndPrintSecret(
  invocation: Invocation,
  create: () => Promise<CreatedSecret>,
): Promise<void> {
  const { session } = invocation;
  const { files } = session.io;
  const file = getTextOption(invocation, 'outputFile');
  if (file === undefined) {
    if (session.settings.output === 'name')
      throw createUsageFailure('-o name does not show the text: add --output-file');
    return printSecret(session, await create());
  }
  await files.createSecret(file, '').catch((reason: unknown) => refuseFile(file, reason));
  let secret: CreatedSecret;
  try {
    secret = await create();
  } catch (reason) {
    await files.remove(file);
    throw reason;
  }
  await files.replaceSecret(file, `${secret.text}\n`);
  if (session.isStructured) return session.printValue(withField(secret.json, 'file', file));
  await session.printNotice(`${secret.summary}; written to ${file}`);
  await session.printNotice(`next: ${secret.next(file)}`);
}

function refuseFile(file: string, reason: unknown): never {
  const code = errorCodeOf(reason);
  const message = reason instanceof Error ? reason.message : String(reason);
  throw createUsageFailure(
    `--output-file: ${code === 'EEXIST' ? `${file} exists already; choose another file` : message}`,
  );
}

async function printSecret(
  session: CliSession,
  { text, json, summary }: CreatedSecret,
): Promise<void> {
  if (session.isStructured) return session.printValue(withField(json, 'text', text));
  await session.print(`${text}\n`);
  await session.printNotice(summary);
  await session.printNotice('The text is not shown again; keep it secret.');
}

function withField(json: JsonValue, key: string, value: string): JsonValue {
  return { ...(json as Readonly<Record<string, JsonValue>>), [key]: value };
}
