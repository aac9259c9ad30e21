import { spawn, type ChildProcess } from 'node:child_process';
import { createWriteStream } from 'node:fs';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { CloudlessError } from '@cloudless/base';
import { systemClock } from '@cloudless/system';

/** The programs that make up a cluster. */
export type Program = 'coordinator' | 'agent' | 'cloudlessctl';

/** The command that runs one of our programs: the bundle beside our own, or the source when we run from source. */
export function commandOf(program: Program): readonly string[] {
  const fromSource = import.meta.url.endsWith('.ts');
  const entry = fromSource ? `../../${program}/src/main.ts` : `../${program}/main.mjs`;
  return [process.execPath, ...process.execArgv, fileURLToPath(new URL(entry, import.meta.url))];
}

/** What a program said when it was ready: the fields of that log line. */
export type ReadyFields = Readonly<Record<string, unknown>>;

/** A running program of the cluster. Its log goes to a file, and to `onLine` where given. */
export class Child {
  /** Resolves when it has ended. */
  readonly exited: Promise<void>;
  private lastLines: string[] = [];

  private constructor(
    readonly name: string,
    private readonly process: ChildProcess,
  ) {
    this.exited = new Promise((resolve) => process.once('close', () => resolve()));
  }

  /**
   * Starts a program and waits for its log line `readyMessage`.
   * @throws kind `unavailable` with its last words when it ends before.
   */
  static async start(options: {
    readonly name: string;
    readonly program: Program;
    readonly args: readonly string[];
    readonly logFile: string;
    readonly readyMessage: string;
    readonly onLine: (line: string) => void;
  }): Promise<{ readonly child: Child; readonly ready: ReadyFields }> {
    const [executable = process.execPath, ...before] = commandOf(options.program);
    // A group of its own: Ctrl-C reaches us alone, and we end the children in good order.
    const spawned = spawn(executable, [...before, ...options.args], { stdio: ['ignore', 'pipe', 'pipe'], detached: true });
    const child = new Child(options.name, spawned);
    const file = createWriteStream(options.logFile, { flags: 'a', mode: 0o600 });
    void child.exited.then(() => file.end());
    const ready = new Promise<ReadyFields>((resolve, reject) => {
      const onLine = (line: string): void => {
        file.write(`${line}\n`);
        options.onLine(line);
        const fields = parseLine(line);
        // What a program says to people is not JSON; its log is in the file.
        if (fields === undefined) child.remember(line);
        if (fields?.['message'] === options.readyMessage) resolve(fields);
      };
      for (const stream of [spawned.stdout, spawned.stderr]) createInterface({ input: stream }).on('line', onLine);
      spawned.once('error', reject);
      void child.exited.then(() =>
        reject(new CloudlessError('unavailable', `${options.name} ended before it was ready:\n${child.lastLines.join('\n')}`)),
      );
    });
    return { child, ready: await ready };
  }

  get pid(): number | undefined {
    return this.process.pid;
  }

  /** SIGTERM, and SIGKILL when it has not ended after `graceMs`. */
  async stop(graceMs: number): Promise<void> {
    this.process.kill('SIGTERM');
    const timer = systemClock.setTimer(graceMs, () => this.process.kill('SIGKILL'));
    await this.exited;
    timer.cancel();
  }

  private remember(line: string): void {
    this.lastLines = [...this.lastLines, line].slice(-LAST_LINES);
  }
}

/** As many lines as tell why a program ended. */
const LAST_LINES = 8;

function parseLine(line: string): ReadyFields | undefined {
  try {
    const value: unknown = JSON.parse(line);
    return typeof value === 'object' && value !== null ? (value as ReadyFields) : undefined;
  } catch {
    return undefined;
  }
}
