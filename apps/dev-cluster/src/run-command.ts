import { spawn } from 'node:child_process';
import pc from 'picocolors';
import { CloudlessError, quoteForShell } from '@cloudless/base';
import { getCommand } from './program-process.js';
import type { Guard } from './guard.js';

/** Name of the command for the guard. Only one command runs at a time. */
const COMMAND = 'cloudlessctl';
/** Time between SIGTERM and SIGKILL. An interrupted command has nothing to clean up. */
const COMMAND_GRACE_MS = 1_000;

/** How commands reach the cluster, and as whom. */
export type ClusterAccess =
  /** In plaintext; base URL of the coordinator. */
  | { readonly server: string }
  /** With the identity of a context of this configuration file. */
  | { readonly configFile: string };

interface RunOptions {
  /** Aborts the running command. */
  readonly signal: AbortSignal;
  readonly guard: Guard;
}

/**
 * Runs commands of cloudlessctl against the cluster, and prints each command and its output as a
 * user would see them.
 */
export class CommandLine {
  constructor(
    private readonly access: ClusterAccess,
    private readonly options: RunOptions & {
      readonly write: (text: string) => void;
      /**
       * True when commands write to the terminal of this program, with its width and colours;
       * false: `write` gets their output.
       */
      readonly hasTerminal: boolean;
    },
  ) {}

  /**
   * Runs `cloudlessctl <args>`.
   * @throws {@link CloudlessError} of kind `internal` that names the command when its exit code is
   *   not 0, and the abort error of Node when `signal` is aborted.
   */
  async run(...args: readonly string[]): Promise<void> {
    const { write, hasTerminal } = this.options;
    write(`\n${pc.bold(`$ ${describeCommand(args)}`)}\n`);
    const code = await this.start(args, hasTerminal ? 'inherit' : 'pipe', (text) => write(text));
    if (code !== 0) throw createFailure(args, code);
  }

  /**
   * Runs `cloudlessctl <args> -o json` without showing it.
   * @returns The value that the command prints.
   * @throws As {@link run}.
   */
  async read(...args: readonly string[]): Promise<unknown> {
    let output = '';
    const code = await this.start([...args, '-o', 'json'], 'pipe', (text, stream) => {
      if (stream === 'stdout') output += text;
    });
    if (code !== 0) throw createFailure(args, code);
    return JSON.parse(output);
  }

  private start(
    args: readonly string[],
    output: 'inherit' | 'pipe',
    onText: OnText,
  ): Promise<number | null> {
    const { access, options } = this;
    return 'server' in access
      ? runCommand(['--server', access.server, ...args], {}, { ...options, output, onText })
      : runCommand(args, toEnvironment(access.configFile), { ...options, output, onText });
  }
}

/** Environment of cloudlessctl that uses the current context of a configuration file. */
export const toEnvironment = (configFile: string): Readonly<Record<string, string>> => ({
  CLOUDLESS_CONFIG: configFile,
  // A server in the environment of the user would have precedence over the context.
  CLOUDLESS_SERVER: '',
});

type OnText = (text: string, stream: 'stdout' | 'stderr') => void;

/**
 * Runs `cloudlessctl <args>`.
 * @param env - Added to the environment of this process.
 * @returns The exit code; null when a signal ended the command.
 */
export async function runCommand(
  args: readonly string[],
  env: Readonly<Record<string, string>>,
  {
    signal,
    guard,
    output,
    onText,
  }: RunOptions & { readonly output: 'inherit' | 'pipe'; readonly onText: OnText },
): Promise<number | null> {
  const [executable = process.execPath, ...before] = getCommand('cloudlessctl');
  const child = spawn(executable, [...before, ...args], {
    stdio: ['ignore', output, output],
    env: { ...process.env, ...env },
    signal,
  });
  guard.registerProcess(COMMAND, { pid: child.pid, stage: 1, graceMs: COMMAND_GRACE_MS });
  for (const stream of ['stdout', 'stderr'] as const)
    child[stream]?.setEncoding('utf8').on('data', (text: string) => onText(text, stream));
  return new Promise<number | null>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', resolve);
  }).finally(() => guard.removeProcess(COMMAND));
}

const describeCommand = (args: readonly string[]): string =>
  `cloudlessctl ${args.map(quoteForShell).join(' ')}`;

const createFailure = (args: readonly string[], code: number | null): CloudlessError =>
  new CloudlessError('internal', `"${describeCommand(args)}" ended with ${code ?? 'a signal'}`);
