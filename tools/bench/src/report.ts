import { execFileSync } from 'node:child_process';
import { cpus } from 'node:os';
import { systemClock } from '@cloudless/app-kit';

/** Median, extremes and 95th percentile of samples. */
export interface Summary {
  readonly count: number;
  readonly min: number;
  readonly median: number;
  readonly p95: number;
  readonly max: number;
}

/**
 * Summarises samples; the results are rounded to a tenth.
 * @param samples - At least one sample.
 */
export function summarise(samples: readonly number[]): Summary {
  const sorted = [...samples].sort((a, b) => a - b);
  const at = (share: number): number =>
    Math.round((sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0) * 10) /
    10;
  return { count: sorted.length, min: at(0), median: at(0.5), p95: at(0.95), max: at(1) };
}

/** Prints results as one JSON object, with commit and machine for comparisons. */
export function printReport(name: string, results: Readonly<Record<string, unknown>>): void {
  const commit = execFileSync('git', ['rev-parse', '--short', 'HEAD'], { encoding: 'utf8' }).trim();
  const machine = { cpus: cpus().length, node: process.version, calibrationMs: calibrate() };
  process.stdout.write(
    `${JSON.stringify({ benchmark: name, commit, machine, ...results }, null, 2)}\n`,
  );
}

/**
 * Measures a fixed amount of work, which distinguishes a slow machine from a slow program.
 * @returns Milliseconds.
 */
function calibrate(): number {
  const startedAt = systemClock.now();
  let sum = 0;
  for (let step = 0; step < CALIBRATION_STEPS; step += 1) sum = (Math.imul(sum, 31) + step) | 0;
  return Math.round((systemClock.now() - startedAt) * 10) / 10 + (sum === 0 ? 1 : 0);
}

const CALIBRATION_STEPS = 100_000_000;
