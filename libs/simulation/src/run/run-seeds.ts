import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type { Clock, Timer } from '@cloudless/base';

/** Result of one seed. */
export interface SeedReport {
  readonly seed: number;
  readonly violations: readonly string[];
  /** Last part of the trace of a failed seed. */
  readonly trace: readonly string[];
  /** Digest of the whole trace; equal traces have equal digests. */
  readonly digest: string;
  readonly convergedMs?: number;
  readonly commits: number;
  readonly acknowledged: number;
  /** CPU time, milliseconds. */
  readonly cpuMs: number;
}

/** Seeds to run, and how. */
export interface SeedRange {
  readonly seeds: Iterable<number>;
  /** Number of concurrent processes. */
  readonly workers: number;
  /** Clock of real time, to detect a process that hangs. */
  readonly clock: Clock;
  /** Stops the run when aborted; results of running seeds are dropped. */
  readonly signal?: AbortSignal;
  readonly onReport: (report: SeedReport) => void;
}

/** A process without a report for this many milliseconds has hung: no world uses real time. */
const SILENCE_MS = 120_000;

/**
 * Runs seeds in separate processes, so that a world that hangs or runs out of memory affects no
 * other. Each process takes the next seed when it has finished one.
 */
export async function runSeeds(range: SeedRange): Promise<void> {
  const remaining = range.seeds[Symbol.iterator]();
  const takeSeed = (): number | undefined =>
    range.signal?.aborted === true ? undefined : (remaining.next().value as number | undefined);
  await Promise.all(Array.from({ length: range.workers }, () => work(takeSeed, range)));
}

/** Runs seeds in one process at a time; a new process continues after one that died. */
async function work(takeSeed: () => number | undefined, range: SeedRange): Promise<void> {
  for (let seed = takeSeed(); seed !== undefined;) {
    const stopped = await runWorker(seed, takeSeed, range);
    if (stopped === undefined) return;
    range.onReport({
      seed: stopped.seed,
      violations: [stopped.reason],
      trace: [],
      digest: '',
      commits: 0,
      acknowledged: 0,
      cpuMs: 0,
    });
    seed = takeSeed();
  }
}

/**
 * Options of the Node processes. Worlds create much short-lived garbage, and many errors whose
 * stacks nobody reads; these options save about a tenth of the time.
 */
const NODE_ARGUMENTS = ['--max-semi-space-size=64', '--stack-trace-limit=3'];

/**
 * Starts a process, and passes one seed after the other to it.
 * @param first - The first seed.
 * @returns The seed at which the process died; undefined when no seeds are left or the run was
 *   stopped.
 */
function runWorker(
  first: number,
  takeSeed: () => number | undefined,
  { signal, clock, onReport }: SeedRange,
): Promise<{ readonly seed: number; readonly reason: string } | undefined> {
  const loader = pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href;
  const worker = fileURLToPath(new URL('./worker.ts', import.meta.url));
  const child = spawn(
    process.execPath,
    [...NODE_ARGUMENTS, '--conditions=@cloudless/source', '--import', loader, worker],
    {
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    },
  );
  return new Promise((resolve) => {
    let current: number | undefined = first;
    let reason = '';
    let silence: Timer | undefined;
    const assign = (seed: number | undefined): void => {
      current = seed;
      silence?.cancel();
      if (seed === undefined) return void child.disconnect();
      silence = clock.setTimer(SILENCE_MS, () => {
        reason = `it stood still for ${SILENCE_MS / 1_000} s of real time`;
        child.kill('SIGKILL');
      });
      child.send(seed);
    };
    const stop = (): void => void child.kill('SIGKILL');
    signal?.addEventListener('abort', stop, { once: true });
    child.on('message', (report) => {
      onReport(report as SeedReport);
      assign(takeSeed());
    });
    child.once('exit', (code, killedBy) => {
      silence?.cancel();
      signal?.removeEventListener('abort', stop);
      const ended = reason === '' ? `its process ended with ${killedBy ?? code}` : reason;
      resolve(
        current === undefined || signal?.aborted === true
          ? undefined
          : { seed: current, reason: ended },
      );
    });
    assign(first);
  });
}

/** Returns the command that runs one seed again. */
export function replayCommand(seed: number): string {
  return `npx nx run simulation:replay -- --seed ${seed}`;
}

/** Returns `count` seeds, beginning with `from`. */
export function seedsFrom(from: number, count: number): readonly number[] {
  return Array.from({ length: count }, (_, index) => from + index);
}

/** Formats a failed seed for people. */
export function describeFailure({ seed, violations, trace }: SeedReport): string {
  return [
    `seed ${seed} failed; replay it with: ${replayCommand(seed)}`,
    ...violations.map((violation) => `  ${violation}`),
    ...(trace.length === 0
      ? []
      : ['  the last of its trace:', ...trace.map((line) => `  ${line}`)]),
  ].join('\n');
}
