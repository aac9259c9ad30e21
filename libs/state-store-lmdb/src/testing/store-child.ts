import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { dirname } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const PROGRAM = fileURLToPath(new URL('store-process.ts', import.meta.url));

/** A child process that runs `store-process.ts`, and its output lines. */
export class StoreChild {
  private readonly output: string[] = [];
  private readonly waiters = new Set<() => void>();
  private readonly ended: Promise<unknown>;
  private hasEnded = false;

  private constructor(private readonly child: ChildProcess) {
    const lines = createInterface({ input: child.stdout ?? process.stdin });
    lines.on('line', (line) => {
      this.output.push(line);
      this.notifyWaiters();
    });
    this.ended = Promise.all([once(child, 'exit'), once(lines, 'close')]).finally(() => {
      this.hasEnded = true;
      this.notifyWaiters();
    });
  }

  /**
   * Starts a process. The caller must kill it, or wait for its end.
   * @param task - Task of `store-process.ts`.
   * @param directory - Data directory of the store.
   * @param maxFileKib - Limit of the size of each file in KiB, to simulate a full disk. Default:
   *   none.
   */
  static start(
    task: 'hold' | 'write' | 'fill',
    directory: string,
    maxFileKib?: number,
  ): StoreChild {
    const args = ['--conditions=@cloudless/source', '--import', 'tsx', PROGRAM, task, directory];
    // ulimit counts blocks of 512 bytes
    const limit = maxFileKib === undefined ? '' : `ulimit -f ${2 * maxFileKib}; `;
    const shell = ['-c', `${limit}exec "$0" "$@"`, process.execPath, ...args];
    return new StoreChild(
      spawn('/bin/sh', shell, { cwd: dirname(PROGRAM), stdio: ['ignore', 'pipe', 'ignore'] }),
    );
  }

  get pid(): number {
    return this.child.pid ?? 0;
  }

  /**
   * Waits until the process has printed `count` lines that start with `start`.
   * @returns All lines so far.
   * @throws Error when the process ends before.
   */
  async waitForLine(start: string, count = 1): Promise<readonly string[]> {
    for (;;) {
      if (this.output.filter((line) => line.startsWith(start)).length >= count) return this.output;
      if (this.hasEnded)
        throw new Error(
          `the process ended before it had printed "${start}" ${count} times: ${this.output.slice(-3).join(' | ')}`,
        );
      await new Promise<void>((resolve) => this.waiters.add(resolve));
    }
  }

  /**
   * Kills the process with SIGKILL and waits until the process has ended.
   * @returns All its output lines.
   */
  async kill(): Promise<readonly string[]> {
    this.child.kill('SIGKILL');
    return this.waitForEnd();
  }

  /**
   * Waits until the process has ended.
   * @returns All its output lines.
   */
  async waitForEnd(): Promise<readonly string[]> {
    await this.ended;
    return this.output;
  }

  private notifyWaiters(): void {
    for (const wake of [...this.waiters]) wake();
    this.waiters.clear();
  }
}
