import { basename } from 'node:path';
import type { Command } from 'commander';
import { errorCodeOf } from '@cloudless/base';
import { createUsageFailure } from '../../call/failure.js';
import type { LocalSession } from '../../call/local-session.js';
import type { LocalInvocation } from '../../command-tree.js';
import { parseEnvFile } from '../../flags/env-file.js';
import { collectValue } from '../../flags/flag-values.js';
import { canAsk, readHiddenLine } from '../ask-user.js';
import { getListOption } from '../options.js';
import { checkValues, type Values } from '../../value-rules.js';

/** Largest file or input that is read: more than all values of one object may have. */
const MAX_INPUT_BYTES = 2 ** 20;

/**
 * Adds the options that give values of a secret or config. A config has no `--prompt`, because its
 * values are not hidden.
 */
export function addValueOptions(command: Command, noun: 'secret' | 'config'): Command {
  command
    .option(
      '--from-file <[key=]path>',
      'file with a value; the key is the name of the file without KEY= (repeatable)',
      collectValue,
    )
    .option('--from-stdin <name>', 'key whose value is standard input')
    .option(
      '--from-env-file <file>',
      'file of KEY=VALUE lines, each a value (repeatable)',
      collectValue,
    );
  if (noun === 'secret')
    command.option(
      '--prompt <name>',
      'key whose value is typed on the terminal, which does not show the value (repeatable)',
      collectValue,
    );
  return command.option(
    '--from-literal <key=value>',
    noun === 'secret'
      ? 'a value; other users of this machine and the history of the shell can show the value (repeatable)'
      : 'a value (repeatable)',
    collectValue,
  );
}

/** Returns true when one of the options of {@link addValueOptions} was given. */
export function hasValueOptions({ options }: LocalInvocation): boolean {
  return ['fromFile', 'fromStdin', 'fromEnvFile', 'prompt', 'fromLiteral'].some(
    (name) => options[name] !== undefined,
  );
}

/**
 * Reads the values that the options of {@link addValueOptions} give. Values that are typed are read
 * last, so that a wrong file is reported first.
 * @returns The values by key; empty without an option.
 * @throws {@link CliFailure} with exit code 2 for a source that cannot be read, a key that two
 *   sources give, and values that the API would refuse. No message contains a value.
 */
export async function readValues(
  invocation: LocalInvocation,
  noun: 'secret' | 'config',
): Promise<Values> {
  const values = new ValueCollector();
  for (const text of getListOption(invocation, 'fromFile'))
    await readFile(invocation, text, noun, values);
  for (const path of getListOption(invocation, 'fromEnvFile'))
    await readEnvFile(invocation, path, values);
  await readLiterals(invocation, noun, values);
  await readStandardInput(invocation, noun, values);
  for (const key of getListOption(invocation, 'prompt')) values.checkNew(key, '--prompt');
  if (getListOption(invocation, 'prompt').length > 0 && !canAsk(invocation.session.io))
    throw createUsageFailure(
      '--prompt needs a terminal; use --from-stdin KEY or --from-file KEY=PATH',
    );
  for (const key of getListOption(invocation, 'prompt')) await promptValue(invocation, key, values);
  checkValues(values.data);
  return values.data;
}

/** Collects values, and refuses a key that two sources give. */
class ValueCollector {
  readonly data: Record<string, Uint8Array> = {};
  private readonly sources = new Map<string, string>();

  /** @param source - Flag and file of the value, for messages. */
  add(key: string, source: string, value: Uint8Array): void {
    this.checkNew(key, source);
    this.sources.set(key, source);
    this.data[key] = value;
  }

  checkNew(key: string, source: string): void {
    const other = this.sources.get(key);
    if (other !== undefined)
      throw createUsageFailure(`the key ${key} is given by ${other} and by ${source}; keep one`);
  }
}

async function readFile(
  { session }: LocalInvocation,
  text: string,
  noun: 'secret' | 'config',
  values: ValueCollector,
): Promise<void> {
  const equals = text.indexOf('=');
  const path = text.slice(equals + 1);
  const key = equals < 0 ? basename(path) : text.slice(0, equals);
  const source = `--from-file ${path}`;
  if (path === '-') throw createUsageFailure('--from-file reads files; use --from-stdin KEY');
  if (path === '' || key === '')
    throw createUsageFailure(`--from-file: expected PATH or KEY=PATH, got ${JSON.stringify(text)}`);
  const bytes = await readBytes(session.io.files, source, path);
  values.add(key, source, bytes);
  if (noun === 'secret') await noteLineFeed(session, key, bytes);
}

async function readBytes(
  files: LocalInvocation['session']['io']['files'],
  source: string,
  path: string,
): Promise<Uint8Array> {
  let bytes: Uint8Array;
  try {
    bytes = await files.read(path);
  } catch (reason) {
    const code = errorCodeOf(reason);
    const message =
      code === 'ENOENT'
        ? 'no such file or directory'
        : code === 'EISDIR'
          ? 'is a directory; give each of its files with an option of its own'
          : reason instanceof Error
            ? reason.message
            : String(reason);
    throw createUsageFailure(`${source}: ${message}`);
  }
  if (bytes.length > MAX_INPUT_BYTES) throw createUsageFailure(`${source}: larger than 1 MiB`);
  return bytes;
}

async function readEnvFile(
  { session }: LocalInvocation,
  path: string,
  values: ValueCollector,
): Promise<void> {
  const { io } = session;
  const source = `--from-env-file ${path}`;
  const bytes = await readBytes(io.files, source, path);
  const text = new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes);
  const pairs = parseEnvFile(path, text, io.env, '--from-env-file');
  if (pairs.length === 0) throw createUsageFailure(`${source}: has no line with KEY=VALUE`);
  for (const pair of pairs) {
    const equals = pair.indexOf('=');
    values.add(pair.slice(0, equals), source, encode(pair.slice(equals + 1)));
  }
}

async function readLiterals(
  invocation: LocalInvocation,
  noun: 'secret' | 'config',
  values: ValueCollector,
): Promise<void> {
  const { session } = invocation;
  const literals = getListOption(invocation, 'fromLiteral');
  for (const text of literals) {
    const equals = text.indexOf('=');
    // The text may be a secret whose key was forgotten.
    if (equals < 1) throw createUsageFailure('--from-literal: expected KEY=VALUE');
    values.add(text.slice(0, equals), '--from-literal', encode(text.slice(equals + 1)));
  }
  if (noun === 'secret' && literals.length > 0)
    await session.printNotice(
      session.style.yellow(
        'warning: other users of this machine and the history of the shell can show the values ' +
          'of --from-literal; use --prompt, --from-stdin or --from-file',
      ),
    );
}

async function readStandardInput(
  { session, options }: LocalInvocation,
  noun: 'secret' | 'config',
  values: ValueCollector,
): Promise<void> {
  const key = options['fromStdin'];
  if (typeof key !== 'string') return;
  const { stdin } = session.io;
  const prompt = noun === 'secret' ? `use --prompt ${key}, or ` : '';
  if (stdin.kind === 'terminal')
    throw createUsageFailure(
      `--from-stdin: standard input is a terminal; ${prompt}write the value with: … | cloudlessctl …`,
    );
  const bytes = await stdin.readAll(MAX_INPUT_BYTES);
  if (bytes === undefined) throw createUsageFailure('--from-stdin: the input is larger than 1 MiB');
  values.add(key, '--from-stdin', bytes);
  if (noun === 'secret') await noteLineFeed(session, key, bytes);
}

/** Names a value of one line that ends with a line feed, as `echo` writes: such a password fails. */
async function noteLineFeed(session: LocalSession, key: string, bytes: Uint8Array): Promise<void> {
  const lineFeed = 0x0a;
  if (bytes.length > 1 && bytes.indexOf(lineFeed) === bytes.length - 1)
    await session.printNotice(
      `note: the value of ${key} ends with a line feed; to leave the line feed out, write the ` +
        'value with printf %s',
    );
}

async function promptValue(
  { session }: LocalInvocation,
  key: string,
  values: ValueCollector,
): Promise<void> {
  const value = await readHiddenLine(session.io, `Value of ${key}: `);
  if (value === undefined || value === '')
    throw createUsageFailure(`--prompt: no value of ${key} was typed`);
  if ((await readHiddenLine(session.io, `Value of ${key}, again: `)) !== value)
    throw createUsageFailure(`--prompt: the two values of ${key} differ; nothing was changed`);
  values.add(key, '--prompt', encode(value));
}

function encode(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}
