// `nx run simulation:soak -- --seeds 20000 --minutes 60 --from 1` runs many worlds on all cores and
// prints statistics at the end.
import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { systemClock } from '@cloudless/app-kit';
import { describeFailure, runSeeds, seedsFrom, type SeedReport } from './run-seeds.js';

const { values } = parseArgs({
  options: {
    seeds: { type: 'string', default: '20000' },
    minutes: { type: 'string', default: '60' },
    from: { type: 'string', default: '1' },
    workers: { type: 'string', default: String(availableParallelism()) },
  },
});
const [count, minutes, from, workers] = [
  values.seeds,
  values.minutes,
  values.from,
  values.workers,
].map(Number) as [number, number, number, number];
for (const [name, value] of Object.entries({ seeds: count, minutes, from, workers })) {
  if (!(value > 0)) throw new Error(`--${name} must be a number above 0`);
}

const reports: SeedReport[] = [];
let failed = 0;
await runSeeds({
  seeds: seedsFrom(from, count),
  workers,
  clock: systemClock,
  signal: AbortSignal.timeout(minutes * 60_000),
  onReport: (report) => {
    reports.push({ ...report, trace: [] });
    if (report.violations.length > 0) {
      failed += 1;
      process.stdout.write(`${describeFailure(report)}\n\n`);
    }
    if (reports.length % 500 === 0)
      process.stderr.write(`${reports.length} seeds, ${failed} failed\n`);
  },
});
/** Returns the distribution of a figure over all seeds that have the figure. */
const distribution = (pick: (report: SeedReport) => number | undefined) => {
  const sorted = reports.flatMap((report) => pick(report) ?? []).sort((a, b) => a - b);
  const at = (share: number): number =>
    Math.round(sorted[Math.floor((sorted.length - 1) * share)] ?? 0);
  return { median: at(0.5), p95: at(0.95), max: at(1) };
};
const sum = (pick: (report: SeedReport) => number): number =>
  reports.reduce((total, report) => total + pick(report), 0);
const figures = {
  seeds: reports.length,
  from,
  failed,
  cpuMs: distribution(({ cpuMs }) => cpuMs),
  convergedMs: distribution(({ convergedMs }) => convergedMs),
  commits: sum(({ commits }) => commits),
  acknowledged: sum(({ acknowledged }) => acknowledged),
};
process.stdout.write(`${JSON.stringify(figures, null, 2)}\n`);
process.exitCode = failed === 0 ? 0 : 1;
