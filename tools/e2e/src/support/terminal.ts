import { createRequire } from 'node:module';
import type { RealCluster } from './cluster.js';
import { findBundle, repository } from './processes.js';

/** The part of node-pty that is used here. */
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

/** A cloudlessctl that runs in a terminal. */
export class Terminal {
  /** All output so far. */
  text = '';
  readonly exited: Promise<number>;
  private readonly waiting = new Set<() => void>();

  private constructor(private readonly pty: Pty) {
    pty.onData((text) => {
      this.text += text;
      this.wakeWaiting();
    });
    this.exited = new Promise((resolve) => pty.onExit(({ exitCode }) => resolve(exitCode)));
  }

  static open(
    cluster: RealCluster,
    args: readonly string[],
    size: { readonly columns: number; readonly rows: number },
  ): Terminal {
    const env = { ...process.env, ...cluster.ctlEnv };
    const options = { cwd: repository, env, cols: size.columns, rows: size.rows };
    return new Terminal(spawn(process.execPath, [findBundle('cloudlessctl'), ...args], options));
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

  /** Waits until the output contains a text. */
  async waitForText(what: RegExp): Promise<void> {
    while (!what.test(this.text)) await new Promise<void>((resolve) => this.waiting.add(resolve));
  }

  private wakeWaiting(): void {
    for (const resolve of this.waiting) resolve();
    this.waiting.clear();
  }
}
