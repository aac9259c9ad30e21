import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

/** An agent in a process of its own, from the bundle that `jest.bundle.cjs` has made. */
export class AgentProcess {
  /** Lines that the agent has written to standard error. */
  readonly stderr: string[] = [];
  private readonly child: ChildProcess;
  /** Log lines of the agent; other lines as `text`. */
  readonly lines: Record<string, unknown>[] = [];
  private waiting: (() => void)[] = [];
  private ended = false;

  constructor(...args: readonly string[]) {
    this.child = spawn(
      process.execPath,
      [join(process.env['CLOUDLESS_TEST_AGENT'] ?? '', 'main.mjs'), ...args],
      {
        stdio: ['ignore', 'pipe', 'pipe'],
        env: {
          PATH: process.env['PATH'],
          HOME: process.env['HOME'],
          CLOUDLESS_AGENT_NETWORK: 'off',
        },
      },
    );
    if (this.child.stdout === null || this.child.stderr === null) throw new Error('no pipes');
    createInterface(this.child.stdout).on('line', (line) => {
      this.lines.push(parse(line));
      for (const wake of this.waiting.splice(0)) wake();
    });
    createInterface(this.child.stderr).on('line', (line) => this.stderr.push(line));
    this.child.once('close', () => {
      this.ended = true;
      for (const wake of this.waiting.splice(0)) wake();
    });
  }

  /**
   * Returns the first log line with this message, and waits for the line if necessary.
   * @throws when the agent ends without the line.
   */
  async waitForLog(message: string): Promise<Record<string, unknown>> {
    for (;;) {
      const found = this.lines.find((line) => line['message'] === message);
      if (found !== undefined) return found;
      if (this.ended)
        throw new Error(
          `the agent ended without the log message "${message}": ${this.stderr.join('\n')}`,
        );
      await new Promise<void>((resolve) => this.waiting.push(resolve));
    }
  }

  /**
   * Sends a signal and waits until the agent has ended.
   * @returns The exit code; null when a signal ended the agent.
   */
  async end(signal: NodeJS.Signals): Promise<number | null> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return this.child.exitCode;
    this.child.kill(signal);
    return this.waitForExit();
  }

  /**
   * Waits until the agent has ended.
   * @returns The exit code; null when a signal ended the agent.
   */
  async waitForExit(): Promise<number | null> {
    if (!this.ended) await once(this.child, 'close');
    return this.child.exitCode;
  }
}

function parse(line: string): Record<string, unknown> {
  try {
    return JSON.parse(line) as Record<string, unknown>;
  } catch {
    return { text: line };
  }
}
