import { spawn } from 'node:child_process';
import pc from 'picocolors';
import { CloudlessError } from '@cloudless/base';
import { getCommand } from './program-process.js';
import type { Guard } from './guard.js';

/** Name of the command for the guard. Only one command runs at a time. */
const COMMAND = 'cloudlessctl';
/** Time between SIGTERM and SIGKILL. An interrupted command has nothing to clean up. */
const COMMAND_GRACE_MS = 1_000;

/**
 * Runs commands of cloudlessctl against the cluster, and prints each command and its output as a
 * user would see them.
 */
export class CommandLine {
  constructor(
    /** Base URL of the coordinator. */
    private readonly server: string,
    private readonly options: {
      readonly write: (text: string) => void;
      /** Aborts the running command. */
      readonly signal: AbortSignal;
      readonly guard: Guard;
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
    const { write, signal, guard, hasTerminal } = this.options;
    const commandText = `cloudlessctl ${args.map(quote).join(' ')}`;
    write(`\n${pc.bold(`$ ${commandText}`)}\n`);
    const [executable = process.execPath, ...before] = getCommand('cloudlessctl');
    const output = hasTerminal ? 'inherit' : 'pipe';
    const child = spawn(executable, [...before, '--server', this.server, ...args], {
      stdio: ['ignore', output, output],
      signal,
    });
    guard.registerProcess(COMMAND, { pid: child.pid, stage: 1, graceMs: COMMAND_GRACE_MS });
    for (const stream of [child.stdout, child.stderr])
      stream?.setEncoding('utf8').on('data', (text: string) => write(text));
    const code = await new Promise<number | null>((resolve, reject) => {
      child.once('error', reject);
      child.once('close', resolve);
    }).finally(() => guard.removeProcess(COMMAND));
    if (code !== 0)
      throw new CloudlessError('internal', `"${commandText}" ended with ${code ?? 'a signal'}`);
  }
}

/** Quotes a word for a shell. */
export function quote(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
