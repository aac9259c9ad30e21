import { usageFailure } from '../failure.js';
import type { Target } from '../failure.js';
import type { CliIo } from '../io.js';
import { parseDuration } from '../quantity.js';
import { didYouMean } from '../suggest.js';
import { configPathOf, namespaceProblem, readContexts, serverProblem } from './contexts.js';

/** The options every command takes, as given. */
export interface GlobalOptions {
  readonly server?: string;
  readonly context?: string;
  readonly namespace?: string;
  readonly output?: string;
  /** False with `--no-color`. */
  readonly color?: boolean;
  readonly timeout?: string;
  readonly requestId?: string;
}

/** How results are printed. */
export type OutputFormat = 'table' | 'wide' | 'json' | 'yaml';

/** The options with the environment, the configuration and the defaults filled in. */
export interface Settings extends Target {
  readonly namespace: string;
  /** Whether the server was asked for with `--server`. */
  readonly serverGiven: boolean;
  /** Whether the namespace was asked for with `--namespace`. */
  readonly namespaceGiven: boolean;
  readonly output: OutputFormat;
  /** Set only when asked for. */
  readonly timeoutMs?: number;
  /** Empty when not asked for. */
  readonly requestId: string;
}

/** The coordinator of a development cluster. */
export const DEFAULT_SERVER = 'http://127.0.0.1:8080';
const DEFAULT_NAMESPACE = 'default';
const OUTPUT_FORMATS: readonly OutputFormat[] = ['table', 'wide', 'json', 'yaml'];

/**
 * Resolves the options. Server: `--server`, then the context of `--context`, then
 * `CLOUDLESS_SERVER`, then the current context, then the default. Namespace: `--namespace`, then
 * the context in use.
 * @param offline - No coordinator will be asked: a context that does not exist is no fault.
 */
export async function resolveSettings(
  options: GlobalOptions,
  io: CliIo,
  offline = false,
): Promise<Settings> {
  const output = OUTPUT_FORMATS.find((format) => format === (options.output ?? 'table'));
  if (output === undefined) {
    const hint = didYouMean(options.output ?? '', OUTPUT_FORMATS);
    throw usageFailure(
      `--output: expected one of ${OUTPUT_FORMATS.join(', ')}, got ${JSON.stringify(options.output)}${hint}`,
    );
  }
  const { path, current, contexts } = await readContexts(io.files, configPathOf(io.env));
  const name = options.context ?? current;
  const context = name === undefined ? undefined : contexts.get(name);
  if (name !== undefined && context === undefined && !offline) {
    const where = options.context === undefined ? `the current context of ${path}` : '--context';
    throw usageFailure(
      `${where}: there is no context ${JSON.stringify(name)} in ${path}${didYouMean(name, contexts.keys())}`,
    );
  }
  const fromEnvironment =
    options.context === undefined ? io.env['CLOUDLESS_SERVER'] || undefined : undefined;
  const server = options.server ?? fromEnvironment ?? context?.server ?? DEFAULT_SERVER;
  const namespace = options.namespace ?? context?.namespace ?? DEFAULT_NAMESPACE;
  refuse(serverProblem(server), options.server === undefined ? 'CLOUDLESS_SERVER' : '--server');
  refuse(namespaceProblem(namespace), '--namespace');
  return {
    server: server.replace(/\/$/, ''),
    ...(name === undefined ? {} : { context: name }),
    configPath: path,
    namespace,
    serverGiven: options.server !== undefined,
    namespaceGiven: options.namespace !== undefined,
    output,
    ...(options.timeout === undefined
      ? {}
      : { timeoutMs: durationOption('--timeout', options.timeout) }),
    requestId: options.requestId ?? '',
  };
}

/** Reads a duration greater than zero from an option, in milliseconds. */
export function durationOption(option: string, text: string): number {
  const parsed = parseDuration(text);
  refuse(
    'problem' in parsed
      ? parsed.problem
      : parsed.value <= 0n
        ? 'must be longer than nothing'
        : undefined,
    option,
  );
  return 'value' in parsed ? Number(parsed.value) / 1e6 : 0;
}

function refuse(problem: string | undefined, option: string): void {
  if (problem !== undefined) throw usageFailure(`${option}: ${problem}`);
}
