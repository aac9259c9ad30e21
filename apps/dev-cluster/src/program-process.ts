import { spawn, type ChildProcess } from 'node:child_process';
import { createWriteStream } from 'node:fs';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { CloudlessError } from '@cloudless/base';
import { systemClock } from '@cloudless/app-kit';
import { jsonToPrettyLine } from '@cloudless/observability/format';
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

/** A program, its files and what receives its output. */
export interface ProgramOptions {
  readonly name: string;
  readonly program: Program;
  readonly args: readonly string[];
  readonly logFile: string;
  /** False when the log file is in a temporary directory, which is removed at the end. */
  readonly keepsLog: boolean;
  /** Message of the log line that the program writes when it serves. */
  readonly readyMessage: string;
  /** Message of a further log line without which the program is not ready. */
  readonly furtherMessage?: string;
  /** Time from the start within which the program must be ready. */
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
  /**
   * Resolves with the fields of the log line `readyMessage`, after `furtherMessage`. Rejects with
   * the last lines of output when the program ends before, or is not ready within
   * `readyTimeoutMs`.
   */
  readonly ready: Promise<ReadyFields>;
  /** Last lines of output that are not log lines. */
  private lastTexts: readonly string[] = [];
  private lastLogLines: readonly string[] = [];

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
      let ready: ReadyFields | undefined;
      let hasFurther = options.furtherMessage === undefined;
      const onLine = (line: string): void => {
        file.write(`${line}\n`);
        options.onLine(line);
        const fields = parseLine(line);
        this.rememberLine(line, fields !== undefined);
        if (fields?.['message'] === options.readyMessage) ready = fields;
        if (fields?.['message'] === options.furtherMessage) hasFurther = true;
        if (ready !== undefined && hasFurther) resolve(ready);
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
    this.ready.then(cancelTimer, cancelTimer); // callers that await `ready` get the error
  }

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

  /**
   * Returns a message about a failure of the program: where its log is, and the last lines that the
   * program wrote.
   * @param failure - What happened, such as `has ended`.
   */
  describeFailure(failure: string): string {
    const { name, logFile, keepsLog } = this.options;
    const log = keepsLog ? `its log is ${logFile}` : '--data-dir DIR would keep its log';
    // A program explains its end in text; log lines say what it did before.
    const lines = this.lastTexts.length > 0 ? this.lastTexts : this.lastLogLines;
    const output =
      lines.length > 0 ? lines.map((line) => `  ${line}`) : ['  (the program wrote nothing)'];
    return [`${name} ${failure}; ${log}. Its last lines:`, ...output].join('\n');
  }

  private createNotReadyError(failure: string): CloudlessError {
    return new CloudlessError('unavailable', this.describeFailure(failure));
  }

  private rememberLine(line: string, isLogLine: boolean): void {
    if (isLogLine)
      this.lastLogLines = [...this.lastLogLines, jsonToPrettyLine(line) ?? line].slice(-LAST_LINES);
    else this.lastTexts = [...this.lastTexts, line].slice(-LAST_LINES);
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
