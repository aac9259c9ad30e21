import { spawn, type ChildProcess } from 'node:child_process';
import { createWriteStream } from 'node:fs';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { CloudlessError } from '@cloudless/base';
import { systemClock } from '@cloudless/app-kit';
import type { Guard } from './guard.js';

/** The programs of a cluster. */
export type Program = 'coordinator' | 'agent' | 'cloudlessctl';

/**
 * Returns the command of a program: the bundle beside this one, or the source when this program
 * runs from source.
 */
export function getCommand(program: Program): readonly string[] {
  const fromSource = import.meta.url.endsWith('.ts');
  const entry = fromSource ? `../../${program}/src/main.ts` : `../${program}/main.mjs`;
  return [process.execPath, ...process.execArgv, fileURLToPath(new URL(entry, import.meta.url))];
}

/** Fields of the log line that a program writes when it is ready. */
export type ReadyFields = Readonly<Record<string, unknown>>;

export interface ProgramOptions {
  readonly name: string;
  readonly program: Program;
  readonly args: readonly string[];
  readonly logFile: string;
  /** Message of the log line that the program writes when it serves. */
  readonly readyMessage: string;
  /** Time from the start within which the program must write that line. */
  readonly readyTimeoutMs: number;
  readonly onLine: (line: string) => void;
  /** Time between SIGTERM and SIGKILL. */
  readonly graceMs: number;
  readonly guard: Guard;
}

/** A running program of the cluster. Its log goes to a file and to `onLine`. */
export class ProgramProcess {
  /** Resolves when the process has ended. */
  readonly exited: Promise<void>;
  private lastLines: string[] = [];

  private constructor(
    private readonly options: ProgramOptions,
    private readonly process: ChildProcess,
  ) {
    this.exited = new Promise((resolve) => process.once('close', () => resolve()));
    const { guard, name, program, graceMs } = options;
    guard.registerProcess(name, {
      pid: process.pid,
      stage: program === 'coordinator' ? 2 : 1,
      graceMs,
    });
    void this.exited.then(() => guard.removeProcess(name));
    const file = createWriteStream(options.logFile, { flags: 'a', mode: 0o600 });
    void this.exited.then(() => file.end());
    let failReady: (reason: Error) => void = () => undefined;
    this.ready = new Promise<ReadyFields>((resolve, reject) => {
      failReady = reject;
      const onLine = (line: string): void => {
        file.write(`${line}\n`);
        options.onLine(line);
        const fields = parseLine(line);
        // Lines that are not JSON are for people; JSON lines are in the log file.
        if (fields === undefined) this.rememberLine(line);
        if (fields?.['message'] === options.readyMessage) resolve(fields);
      };
      for (const stream of [process.stdout, process.stderr]) {
        if (stream !== null) createInterface({ input: stream }).on('line', onLine);
      }
      process.once('error', reject);
      void this.exited.then(() => reject(this.createNotReadyError('ended before it was ready')));
    });
    const readyTimer = systemClock.setTimer(options.readyTimeoutMs, () =>
      failReady(
        this.createNotReadyError(`was not ready after ${options.readyTimeoutMs / 1_000} s`),
      ),
    );
    const cancelTimer = (): void => readyTimer.cancel();
    this.ready.then(cancelTimer, cancelTimer); // callers that await it get the error
  }

  /**
   * Resolves with the fields of the log line `readyMessage`. Rejects with the last lines of output
   * when the program ends before, or does not write the line within `readyTimeoutMs`.
   */
  readonly ready: Promise<ReadyFields>;

  /** Starts a program. */
  static start(options: ProgramOptions): ProgramProcess {
    const [executable = process.execPath, ...before] = getCommand(options.program);
    // A separate process group: Ctrl-C reaches only this process, which ends its children in order.
    const spawned = spawn(executable, [...before, ...options.args], {
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true,
    });
    return new ProgramProcess(options, spawned);
  }

  get pid(): number | undefined {
    return this.process.pid;
  }

  /** Sends SIGTERM, and SIGKILL after the grace period. */
  async stop(): Promise<void> {
    const { guard, name, graceMs } = this.options;
    guard.markStopping(name);
    this.process.kill('SIGTERM');
    const timer = systemClock.setTimer(graceMs, () => this.process.kill('SIGKILL'));
    await this.exited;
    timer.cancel();
  }

  private createNotReadyError(failure: string): CloudlessError {
    const { name, logFile } = this.options;
    return new CloudlessError(
      'unavailable',
      [`${name} ${failure}; its log is ${logFile}`, ...this.lastLines].join('\n'),
    );
  }

  private rememberLine(line: string): void {
    this.lastLines = [...this.lastLines, line].slice(-LAST_LINES);
  }
}

/** Number of lines that show why a program ended. */
const LAST_LINES = 8;

function parseLine(line: string): ReadyFields | undefined {
  try {
    const value: unknown = JSON.parse(line);
    return typeof value === 'object' && value !== null ? (value as ReadyFields) : undefined;
  } catch {
    return undefined;
  }
}
