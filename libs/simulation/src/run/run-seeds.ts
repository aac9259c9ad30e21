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
  /** Real time, to detect a process that hangs. */
  readonly clock: Clock;
  /** Stops the run when aborted; results of running seeds are dropped. */
  readonly signal?: AbortSignal;
  readonly onReport: (report: SeedReport) => void;
}

/** A process without output for this long has hung: no world waits for real time. Milliseconds. */
const SILENCE_MS = 120_000;

/**
 * Runs seeds in separate processes, so that a world that hangs or runs out of memory affects no
 * other. Each process takes the next seed when it has finished one.
 */
export async function runSeeds(range: SeedRange): Promise<void> {
  const left = range.seeds[Symbol.iterator]();
  const takeSeed = (): number | undefined =>
    range.signal?.aborted === true ? undefined : (left.next().value as number | undefined);
  await Promise.all(Array.from({ length: range.workers }, () => work(takeSeed, range)));
}

async function work(take: () => number | undefined, range: SeedRange): Promise<void> {
  for (let seed = take(); seed !== undefined;) {
    const stopped = await runWorker(seed, take, range);
    if (stopped === undefined) return;
    range.onReport({
      seed: stopped.seed,
      violations: [stopped.why],
      trace: [],
      digest: '',
      commits: 0,
      acknowledged: 0,
      cpuMs: 0,
    });
    seed = take();
  }
}

/**
 * Worlds create much short-lived garbage and many errors whose stacks nobody reads; these options
 * save about a tenth of the time.
 */
const NODE_ARGUMENTS = ['--max-semi-space-size=64', '--stack-trace-limit=3'];

/**
 * Passes seeds to one process.
 * @returns The seed at which the process died, or undefined when no seeds are left.
 */
function runWorker(
  first: number,
  take: () => number | undefined,
  { signal, clock, onReport }: SeedRange,
): Promise<{ readonly seed: number; readonly why: string } | undefined> {
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
    let why = '';
    let silence: Timer | undefined;
    const give = (seed: number | undefined): void => {
      current = seed;
      silence?.cancel();
      if (seed === undefined) return void child.disconnect();
      silence = clock.setTimer(SILENCE_MS, () => {
        why = `it stood still for ${SILENCE_MS / 1_000} s of real time`;
        child.kill('SIGKILL');
      });
      child.send(seed);
    };
    const stop = (): void => void child.kill('SIGKILL');
    signal?.addEventListener('abort', stop, { once: true });
    child.on('message', (report) => {
      onReport(report as SeedReport);
      give(take());
    });
    child.once('exit', (code, killedBy) => {
      silence?.cancel();
      signal?.removeEventListener('abort', stop);
      const ended = why === '' ? `its process ended with ${killedBy ?? code}` : why;
      resolve(
        current === undefined || signal?.aborted === true
          ? undefined
          : { seed: current, why: ended },
      );
    });
    give(first);
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
