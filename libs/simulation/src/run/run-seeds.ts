import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type { Clock, Timer } from '@cloudless/base';

/** What became of a seed, as a runner tells it. */
export interface SeedReport {
  readonly seed: number;
  readonly violations: readonly string[];
  /** The last part of the trace of a seed that failed. */
  readonly trace: readonly string[];
  /** Of the whole trace: equal ones come from equal traces. */
  readonly digest: string;
  readonly convergedMs?: number;
  readonly commits: number;
  readonly acknowledged: number;
  /** CPU time, milliseconds. */
  readonly cpuMs: number;
}

/** Which seeds to run, and how. */
export interface SeedRange {
  readonly seeds: Iterable<number>;
  /** Processes at a time. */
  readonly workers: number;
  /** The real time: tells a process that stands still. */
  readonly clock: Clock;
  /** Ends when aborted; what is under way is dropped. */
  readonly signal?: AbortSignal;
  readonly onReport: (report: SeedReport) => void;
}

/** A seed that says nothing for so long stands still: nothing in it waits for real time. */
const SILENCE_MS = 120_000;

/**
 * Runs seeds in processes of their own: one that spins or runs out of memory takes no other with
 * it. Each process takes the next seed when it is done with one.
 */
export async function runSeeds(range: SeedRange): Promise<void> {
  const left = range.seeds[Symbol.iterator]();
  const take = (): number | undefined =>
    range.signal?.aborted === true ? undefined : (left.next().value as number | undefined);
  await Promise.all(Array.from({ length: range.workers }, () => work(take, range)));
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
 * Worlds make much short-lived garbage, and end calls with errors that nobody reads: about a tenth
 * of their time.
 */
const CHEAPER = ['--max-semi-space-size=64', '--stack-trace-limit=3'];

/** Feeds one process. @returns The seed at which it died, or undefined when there are no more. */
function runWorker(
  first: number,
  take: () => number | undefined,
  { signal, clock, onReport }: SeedRange,
): Promise<{ readonly seed: number; readonly why: string } | undefined> {
  const loader = pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href;
  const worker = fileURLToPath(new URL('./worker.ts', import.meta.url));
  const child = spawn(
    process.execPath,
    [...CHEAPER, '--conditions=@cloudless/source', '--import', loader, worker],
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

/** The command that lives through one seed again. */
export function replayCommand(seed: number): string {
  return `npx nx run simulation:replay -- --seed ${seed}`;
}

/** `count` seeds, beginning with `from`. */
export function seedsFrom(from: number, count: number): readonly number[] {
  return Array.from({ length: count }, (_, index) => from + index);
}

/** A failed seed for people. */
export function describeFailure({ seed, violations, trace }: SeedReport): string {
  return [
    `seed ${seed} failed; replay it with: ${replayCommand(seed)}`,
    ...violations.map((violation) => `  ${violation}`),
    ...(trace.length === 0
      ? []
      : ['  the last of its trace:', ...trace.map((line) => `  ${line}`)]),
  ].join('\n');
}
