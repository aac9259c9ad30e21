import { createRequire } from 'node:module';
import type { RealCluster } from './cluster.js';
import { findBundle, repository } from './processes.js';

/** The part of node-pty that {@link Terminal} uses. */
interface Pty {
  readonly pid: number;
  onData(listener: (text: string) => void): unknown;
  onExit(listener: (end: { readonly exitCode: number; readonly signal?: number }) => void): unknown;
  write(text: string): void;
  resize(columns: number, rows: number): void;
  kill(signal: string): void;
}
const { spawn } = createRequire(import.meta.url)('@lydell/node-pty') as {
  readonly spawn: (file: string, args: readonly string[], options: object) => Pty;
};

/** A program that runs in a pseudoterminal. */
export class Terminal {
  /** All output so far. */
  text = '';
  /** Resolves with the exit code. */
  readonly exited: Promise<number>;
  private readonly waiters = new Set<() => void>();

  private constructor(private readonly pty: Pty) {
    pty.onData((text) => {
      this.text += text;
      this.notifyWaiters();
    });
    this.exited = new Promise((resolve) => pty.onExit(({ exitCode }) => resolve(exitCode)));
  }

  /**
   * Starts a program.
   * @param command - The program and its arguments.
   * @param env - Added to the environment of the test.
   */
  static start(
    [file = '', ...args]: readonly string[],
    env: NodeJS.ProcessEnv,
    size = { columns: 80, rows: 24 },
  ): Terminal {
    const allEnv = { ...process.env, ...env };
    const options = { cwd: repository, env: allEnv, cols: size.columns, rows: size.rows };
    return new Terminal(spawn(file, args, options));
  }

  /** Starts a cloudlessctl that uses a cluster. */
  static open(
    cluster: RealCluster,
    args: readonly string[],
    size: { readonly columns: number; readonly rows: number },
  ): Terminal {
    const command = [process.execPath, findBundle('cloudlessctl'), ...args];
    return Terminal.start(command, cluster.ctlEnv, size);
  }

  sendText(text: string): void {
    this.pty.write(text);
  }

  resize(columns: number, rows: number): void {
    this.pty.resize(columns, rows);
  }

  kill(signal: NodeJS.Signals): void {
    this.pty.kill(signal);
  }

  /** Waits until the output matches a pattern. */
  async waitForText(pattern: RegExp): Promise<void> {
    while (!pattern.test(this.text))
      await new Promise<void>((resolve) => this.waiters.add(resolve));
  }

  private notifyWaiters(): void {
    for (const resolve of this.waiters) resolve();
    this.waiters.clear();
  }
}
