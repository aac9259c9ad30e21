import { availableParallelism } from 'node:os';
import { jest } from '@jest/globals';
import { systemClock } from '@cloudless/app-kit';
import {
  describeFailure,
  replayCommand,
  runSeeds,
  seedsFrom,
  type SeedReport,
} from '../run/run-seeds.js';

/** `CLOUDLESS_SEEDS=50` runs fewer seeds for a quick check. */
const SEEDS = Number(process.env['CLOUDLESS_SEEDS'] ?? 500);
/** Seeds that run a second time, in another process or at another time. */
const SAMPLE = [3, 57, 101, 142, 199, 260, 311, 372, 433, 491].filter((seed) => seed <= SEEDS);

/** Hundreds of worlds, on a machine that may be busy. */
jest.setTimeout(30 * 60_000);

describe('SimCluster', () => {
  it(`keeps all invariants and converges in ${SEEDS} worlds, and repeats runs exactly for equal seeds`, async () => {
    const reports = await run(seedsFrom(1, SEEDS));
    const failed = [...reports.values()].filter(({ violations }) => violations.length > 0);
    expect(failed.map(describeFailure).join('\n\n')).toBe('');
    expect(reports.size).toBe(SEEDS);
    const again = await run(SAMPLE);
    const different = SAMPLE.filter(
      (seed) => again.get(seed)?.digest !== reports.get(seed)?.digest,
    );
    expect(
      different.map((seed) => `two traces of seed ${seed} differ; compare: ${replayCommand(seed)}`),
    ).toEqual([]);
  });
});

async function run(seeds: readonly number[]): Promise<ReadonlyMap<number, SeedReport>> {
  const reports = new Map<number, SeedReport>();
  const workers = availableParallelism();
  await runSeeds({
    seeds,
    workers,
    clock: systemClock,
    onReport: (report) => reports.set(report.seed, report),
  });
  return reports;
}
