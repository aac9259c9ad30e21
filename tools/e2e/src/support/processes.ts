import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { existsSync, readFileSync, readdirSync, readlinkSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Root directory of the checkout. */
export const repository = fileURLToPath(new URL('../../../..', import.meta.url));

/**
 * Agents have no network proxy, which is a further process for each of them, unless a test asks for
 * one with `--network`.
 */
const WITHOUT_PROXY = { CLOUDLESS_AGENT_NETWORK: 'off' };

/** Exit code and output of a program that has ended. */
export interface FinishedProgram {
  /** Null when a signal ended the program. */
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/**
 * Returns the path of the bundle of an app.
 * @throws Error when the bundle was not built.
 */
export function findBundle(app: 'coordinator' | 'agent' | 'cloudlessctl' | 'dev-cluster'): string {
  const bundle = join(repository, 'dist/apps', app, 'main.mjs');
  if (!existsSync(bundle)) throw new Error(`${bundle} is missing: run "npm run build" first`);
  return bundle;
}

/**
 * Time limit of programs that end by themselves. A program that hangs is killed, so that it does
 * not outlive its test.
 */
const END_WITHIN_MS = 60_000;

/**
 * Runs a program until it exits, at most 60 s.
 * @param options - `input`: text for stdin, default empty. `env`: added to the environment of the
 *   test. `cwd`: default the root of the checkout.
 */
export function runToEnd(
  executable: string,
  args: readonly string[],
  options: {
    readonly input?: string | Uint8Array;
    readonly env?: NodeJS.ProcessEnv;
    readonly cwd?: string;
  } = {},
): Promise<FinishedProgram> {
  const child = spawn(executable, args, {
    cwd: options.cwd ?? repository,
    env: { ...process.env, ...WITHOUT_PROXY, ...options.env },
    timeout: END_WITHIN_MS,
    killSignal: 'SIGKILL',
  });
  let stdout = '';
  let stderr = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  // A program may end without reading its input, which breaks the pipe. The caller checks the exit
  // code.
  child.stdin.on('error', () => undefined);
  child.stdin.end(options.input ?? '');
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => resolve({ code, stdout, stderr }));
  });
}

/** A running program, and the lines of its stdout and stderr. */
export class RunningProgram {
  /** All lines so far. */
  readonly lines: string[] = [];
  /** Resolves with the exit code at the end of the program; null when a signal ended it. */
  readonly exited: Promise<number | null>;
  private readonly waiters = new Set<() => void>();
  private ended = false;

  constructor(private readonly child: ChildProcess) {
    this.exited = new Promise((resolve) => child.once('close', (code) => resolve(code)));
    void this.exited.then(() => {
      this.ended = true;
      this.notifyWaiters();
    });
    for (const stream of [child.stdout, child.stderr]) {
      if (stream === null) continue;
      createInterface({ input: stream }).on('line', (line) => {
        this.lines.push(line);
        this.notifyWaiters();
      });
    }
  }

  /**
   * Starts a program. The caller must kill it, or wait for its end.
   * @param env - Added to the environment of the test.
   */
  static start(
    executable: string,
    args: readonly string[],
    env: NodeJS.ProcessEnv = {},
  ): RunningProgram {
    return new RunningProgram(
      spawn(executable, args, {
        cwd: repository,
        env: { ...process.env, ...WITHOUT_PROXY, ...env },
        stdio: ['ignore', 'pipe', 'pipe'],
      }),
    );
  }

  get pid(): number {
    return this.child.pid ?? 0;
  }

  /** True after the end of the program. */
  get hasEnded(): boolean {
    return this.ended;
  }

  /**
   * Waits for the first log line with a message and returns its fields.
   * @throws Error when the program ends before.
   */
  async waitForLog(message: string): Promise<Record<string, unknown>> {
    const line = await this.waitForLine((text) => text.includes(`"message":"${message}"`));
    return JSON.parse(line) as Record<string, unknown>;
  }

  /**
   * Waits for the first line that satisfies a condition and returns it. Lines that were written
   * before the call count, too.
   * @throws Error with all lines when the program ends before.
   */
  async waitForLine(fits: (line: string) => boolean): Promise<string> {
    for (let index = 0; ;) {
      for (; index < this.lines.length; index += 1) {
        const line = this.lines[index] ?? '';
        if (fits(line)) return line;
      }
      if (this.ended) throw new Error(`ended before:\n${this.lines.join('\n')}`);
      await new Promise<void>((resolve) => this.waiters.add(resolve));
    }
  }

  /**
   * Sends a signal and waits until the program has ended.
   * @returns The exit code; null when the signal ended the program.
   */
  async kill(signal: NodeJS.Signals = 'SIGKILL'): Promise<number | null> {
    this.child.kill(signal);
    return this.exited;
  }

  private notifyWaiters(): void {
    for (const resolve of this.waiters) resolve();
    this.waiters.clear();
  }
}

/**
 * Lists processes that use a directory: in their arguments, environment, working directory or open
 * files. Also finds the processes of workloads, whose command lines do not name their agent.
 * @returns A line `<pid> <command line>` for each process.
 */
export function listProcessesUsing(directory: string): readonly string[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .filter((pid) => listTraces(pid).some((trace) => trace.includes(directory)))
    .map(
      (pid) =>
        `${pid} ${readOrEmpty(() => readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' '))}`,
    );
}

/** Returns all texts of a process that may contain the path of a directory. */
function listTraces(pid: string): readonly string[] {
  const files = readOrEmpty(() => readdirSync(`/proc/${pid}/fd`).join(' ')).split(' ');
  return [
    ...['cmdline', 'environ'].map((name) =>
      readOrEmpty(() => readFileSync(`/proc/${pid}/${name}`, 'utf8')),
    ),
    ...['cwd', ...files.map((file) => `fd/${file}`)].map((name) =>
      readOrEmpty(() => readlinkSync(`/proc/${pid}/${name}`)),
    ),
  ];
}

/** Returns the result of `read`, or an empty text when the process has ended meanwhile. */
function readOrEmpty(read: () => string): string {
  try {
    return read();
  } catch {
    return '';
  }
}

/**
 * Kills processes that a test left behind. Processes that have ended are ignored.
 * @param lines - Lines that begin with a process id.
 */
export function killAll(lines: readonly string[]): void {
  for (const line of lines)
    readOrEmpty(() => String(process.kill(Number.parseInt(line, 10), 'SIGKILL')));
}

/**
 * Lists the processes whose command line contains `text`.
 * @returns A line `<pid> <command line>` for each process.
 */
export function listProcessesMentioning(text: string): string[] {
  return execFileSync('ps', ['-eo', 'pid,args'], { encoding: 'utf8' })
    .split('\n')
    .filter((line) => line.includes(text) && !line.includes('ps -eo'));
}
