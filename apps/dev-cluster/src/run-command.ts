import { spawn } from 'node:child_process';
import pc from 'picocolors';
import { CloudlessError } from '@cloudless/base';
import { getCommand } from './program-process.js';
import type { Guard } from './guard.js';

/** Name for the guard. Only one command runs at a time. */
const COMMAND = 'cloudlessctl';
const COMMAND_GRACE_MS = 1_000;

/** Runs cloudlessctl against the cluster as a user would. Prints the command and its output. */
export class CommandLine {
  constructor(
    private readonly server: string,
    private readonly write: (text: string) => void,
    /** Aborts the running command. */
    private readonly signal: AbortSignal,
    private readonly guard: Guard,
  ) {}

  /** @throws kind `internal` naming the command, when its exit code is not 0. */
  async run(...args: readonly string[]): Promise<string> {
    const shown = `cloudlessctl ${args.map(quote).join(' ')}`;
    this.write(`\n${pc.bold(`$ ${shown}`)}\n`);
    const [executable = process.execPath, ...before] = getCommand('cloudlessctl');
    const child = spawn(executable, [...before, '--server', this.server, ...args], {
      stdio: ['ignore', 'pipe', 'pipe'],
      signal: this.signal,
    });
    this.guard.registerProcess(COMMAND, { pid: child.pid, stage: 1, graceMs: COMMAND_GRACE_MS });
    let output = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      output += text;
      this.write(text);
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => this.write(text));
    const code = await new Promise<number | null>((resolve, reject) => {
      child.once('error', reject);
      child.once('close', resolve);
    }).finally(() => this.guard.removeProcess(COMMAND));
    if (code !== 0)
      throw new CloudlessError('internal', `"${shown}" ended with ${code ?? 'a signal'}`);
    return output;
  }
}

/** Quotes a word for a shell. */
export function quote(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
