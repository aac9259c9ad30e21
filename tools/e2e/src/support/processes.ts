import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { existsSync, readFileSync, readdirSync, readlinkSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Root directory of the checkout. */
export const repository = fileURLToPath(new URL('../../../..', import.meta.url));

/** Exit code and output of a program. */
export interface FinishedProgram {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Returns the path of the bundle of an app. @throws when the bundle was not built. */
export function findBundle(app: 'coordinator' | 'agent' | 'cloudlessctl' | 'dev-cluster'): string {
  const bundle = join(repository, 'dist/apps', app, 'main.mjs');
  if (!existsSync(bundle)) throw new Error(`${bundle} is missing: run "npm run build" first`);
  return bundle;
}

/**
 * Time limit of programs that end by themselves, so that a hanging program does not outlive its
 * test.
 */
const END_WITHIN_MS = 60_000;

/** Runs a program until it exits. */
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
    env: { ...process.env, ...options.env },
    timeout: END_WITHIN_MS,
    killSignal: 'SIGKILL',
  });
  let stdout = '';
  let stderr = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  // A program may end without reading its input, which breaks the pipe; its exit code is checked
  // instead.
  child.stdin.on('error', () => undefined);
  child.stdin.end(options.input ?? '');
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => resolve({ code, stdout, stderr }));
  });
}

/** A running program with the lines of its output. */
export class RunningProgram {
  readonly lines: string[] = [];
  readonly exited: Promise<number | null>;
  private readonly waiting = new Set<() => void>();
  private ended = false;

  constructor(private readonly child: ChildProcess) {
    this.exited = new Promise((resolve) => child.once('close', (code) => resolve(code)));
    void this.exited.then(() => {
      this.ended = true;
      this.wakeWaiting();
    });
    for (const stream of [child.stdout, child.stderr]) {
      if (stream === null) continue;
      createInterface({ input: stream }).on('line', (line) => {
        this.lines.push(line);
        this.wakeWaiting();
      });
    }
  }

  static start(
    executable: string,
    args: readonly string[],
    env: NodeJS.ProcessEnv = {},
  ): RunningProgram {
    return new RunningProgram(
      spawn(executable, args, {
        cwd: repository,
        env: { ...process.env, ...env },
        stdio: ['ignore', 'pipe', 'pipe'],
      }),
    );
  }

  get pid(): number {
    return this.child.pid ?? 0;
  }

  /**
   * Returns the fields of the first log line with a message. @throws when the program ends before.
   */
  async waitForLog(message: string): Promise<Record<string, unknown>> {
    const line = await this.waitForLine((text) => text.includes(`"message":"${message}"`));
    return JSON.parse(line) as Record<string, unknown>;
  }

  /**
   * Returns the first line that satisfies a condition, as soon as it is written. @throws when the
   * program ends before; the message contains all lines.
   */
  async waitForLine(fits: (line: string) => boolean): Promise<string> {
    for (let seen = 0; ;) {
      for (; seen < this.lines.length; seen += 1) {
        const line = this.lines[seen] ?? '';
        if (fits(line)) return line;
      }
      if (this.ended) throw new Error(`ended before:\n${this.lines.join('\n')}`);
      await new Promise<void>((resolve) => this.waiting.add(resolve));
    }
  }

  async kill(signal: NodeJS.Signals = 'SIGKILL'): Promise<number | null> {
    this.child.kill(signal);
    return this.exited;
  }

  private wakeWaiting(): void {
    for (const resolve of this.waiting) resolve();
    this.waiting.clear();
  }
}

/**
 * Lists processes that use a directory: in their arguments, environment, working directory or open
 * files. This also finds workloads, whose command lines do not mention their agent.
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

/** A process may end during the inspection; then the function returns an empty value. */
function readOrEmpty(read: () => string): string {
  try {
    return read();
  } catch {
    return '';
  }
}

/**
 * Kills leftover processes of a test; some may have ended already. @param lines - Each begins with
 * a process id.
 */
export function killAll(lines: readonly string[]): void {
  for (const line of lines)
    readOrEmpty(() => String(process.kill(Number.parseInt(line, 10), 'SIGKILL')));
}

/**
 * Lists the command lines of processes that contain `text`, to find leftover processes of a test.
 */
export function listProcessesMentioning(text: string): string[] {
  return execFileSync('ps', ['-eo', 'pid,args'], { encoding: 'utf8' })
    .split('\n')
    .filter((line) => line.includes(text) && !line.includes('ps -eo'));
}
