import { definedFields } from '@cloudless/base';
import { createUsageFailure } from '../call/failure.js';
import type { ConnectionTarget } from '../call/failure.js';
import type { CliIo } from '../io/io.js';
import type { OutputChoice, OutputFormat } from '../output/output-format.js';
import { parseDuration } from '../quantity.js';
import { suggestSimilar } from '../suggest.js';
import { checkNamespace, checkServer } from './context.js';
import type { Context } from './context.js';
import type { CredentialSource, Credentials } from './credential-source.js';
import { getConfigPath, readContexts } from './contexts.js';
import { joinServers, splitServers } from './server-list.js';

/** The global options as given on the command line. */
export interface GlobalOptions {
  readonly server?: string;
  readonly context?: string;
  readonly namespace?: string;
  readonly output?: string;
  /** False with `--no-color`. */
  readonly color?: boolean;
  /** True with `--utc`. */
  readonly utc?: boolean;
  readonly timeout?: string;
  readonly requestId?: string;
  readonly tokenFile?: string;
  readonly caFile?: string;
}

/**
 * The settings of a command: global options, environment, configuration file and defaults combined.
 */
export interface Settings extends ConnectionTarget, OutputChoice {
  /** Namespace of names that are given without a namespace. */
  readonly namespace: string;
  /** True when `--server` was given. */
  readonly serverGiven: boolean;
  /** True when `--context` was given. */
  readonly contextGiven: boolean;
  /** True when `--namespace` was given. */
  readonly namespaceGiven: boolean;
  /** Present only when `--timeout` was given. */
  readonly timeoutMs?: number;
  /** Empty without `--request-id`. */
  readonly requestId: string;
  /** Used for servers with https. */
  readonly credentials: Credentials;
}

/** Address without any setting: the coordinator of a development cluster. */
export const DEFAULT_SERVER = 'http://127.0.0.1:8080';
const DEFAULT_NAMESPACE = 'default';
/** The formats of `--output` that take no template. */
export const OUTPUT_FORMATS: readonly OutputFormat[] = [
  'table',
  'wide',
  'json',
  'yaml',
  'name',
  'manifest',
];

/**
 * Resolves the settings. Precedence of the server: `--server`, the context of `--context`,
 * `CLOUDLESS_SERVER`, the current context, the default. Precedence of the namespace: `--namespace`,
 * the context in use, `default`.
 * @param offline - True for a command that does not call a coordinator. A context that does not
 *   exist is then no error.
 * @throws {@link CliFailure} with exit code 2 for an invalid option, environment variable or
 *   configuration file, and for a context that does not exist.
 */
export async function resolveSettings(
  options: GlobalOptions,
  io: CliIo,
  offline = false,
): Promise<Settings> {
  const choice = await readOutputChoice(options.output);
  const { path, current, contexts } = await readContexts(io.files, getConfigPath(io.env));
  const name = options.context ?? current;
  const context = name === undefined ? undefined : contexts.get(name);
  if (name !== undefined && context === undefined && !offline) {
    const source = options.context === undefined ? `the current context of ${path}` : '--context';
    throw createUsageFailure(
      `${source}: context ${JSON.stringify(name)} does not exist in ${path}${suggestSimilar(name, contexts.keys())}`,
    );
  }
  const fromEnvironment =
    options.context === undefined ? io.env['CLOUDLESS_SERVER'] || undefined : undefined;
  const server = options.server ?? fromEnvironment ?? context?.server ?? DEFAULT_SERVER;
  const namespace = options.namespace ?? context?.namespace ?? DEFAULT_NAMESPACE;
  requireValid(checkServer(server), options.server === undefined ? 'CLOUDLESS_SERVER' : '--server');
  requireValid(checkNamespace(namespace), '--namespace');
  return {
    server: joinServers(splitServers(server)),
    ...definedFields({ context: name }),
    configPath: path,
    namespace,
    serverGiven: options.server !== undefined,
    contextGiven: options.context !== undefined,
    namespaceGiven: options.namespace !== undefined,
    ...choice,
    ...(options.timeout === undefined
      ? {}
      : { timeoutMs: parseDurationOption('--timeout', options.timeout) }),
    requestId: options.requestId ?? '',
    credentials: readCredentials(options, io, context, path),
  };
}

/**
 * Returns the credential of a command. Precedence: `--token-file`, `CLOUDLESS_TOKEN` (unless a
 * context was chosen with `--context`), the context in use.
 * @param configPath - The paths of a context are relative to the directory of this file.
 */
function readCredentials(
  options: GlobalOptions,
  io: CliIo,
  context: Context | undefined,
  configPath: string,
): Credentials {
  const { caFile: contextCaFile } = context ?? {};
  const caFile =
    options.caFile ??
    (contextCaFile === undefined ? undefined : resolvePath(configPath, contextCaFile));
  const source = findCredentialSource(options, io, context, configPath);
  return definedFields({ source, caFile });
}

function findCredentialSource(
  { tokenFile, context: contextOption }: GlobalOptions,
  io: CliIo,
  context: Context | undefined,
  configPath: string,
): CredentialSource | undefined {
  if (tokenFile !== undefined)
    return { kind: 'tokenFile', path: tokenFile, origin: '--token-file' };
  const text = contextOption === undefined ? io.env['CLOUDLESS_TOKEN'] : undefined;
  if (text) return { kind: 'tokenText', text, origin: 'CLOUDLESS_TOKEN' };
  const { tokenFile: path, identityDir } = context ?? {};
  if (path !== undefined)
    return {
      kind: 'tokenFile',
      path: resolvePath(configPath, path),
      origin: 'tokenFile of the context',
    };
  return identityDir === undefined
    ? undefined
    : { kind: 'identity', directory: resolvePath(configPath, identityDir) };
}

/**
 * Resolves a path of the configuration file.
 * @returns An absolute path as is, another path below the directory of the configuration file.
 */
export function resolvePath(configPath: string, path: string): string {
  return path.startsWith('/')
    ? path
    : `${configPath.slice(0, configPath.lastIndexOf('/') + 1)}${path}`;
}

/**
 * Parses `--output`. The parser of templates is loaded only when a format other than these is
 * given.
 */
async function readOutputChoice(text = 'table'): Promise<OutputChoice> {
  if (text === 'table' || text === 'json' || text === 'yaml') return { output: text };
  const { parseOutput } = await import('../output/output-format.js');
  return parseOutput(text);
}

/**
 * Parses a duration greater than zero.
 * @param option - Name of the option, for the error message.
 * @returns Milliseconds, possibly with a fraction.
 */
export function parseDurationOption(option: string, text: string): number {
  const parsed = parseDuration(text);
  requireValid(
    'problem' in parsed
      ? parsed.problem
      : parsed.value <= 0n
        ? 'must be greater than zero'
        : undefined,
    option,
  );
  return 'value' in parsed ? Number(parsed.value) / 1e6 : 0;
}

/** Throws the problem with the name of the option, if there is a problem. */
function requireValid(problem: string | undefined, option: string): void {
  if (problem !== undefined) throw createUsageFailure(`${option}: ${problem}`);
}
