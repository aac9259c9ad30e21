import { availableParallelism } from 'node:os';
import { jest } from '@jest/globals';
import { systemClock } from '@cloudless/app-kit';
import { FIRST_SEED_OF_GROUPS } from '../faults/fault-plan.js';
import {
  describeFailure,
  replayCommand,
  runSeeds,
  seedsFrom,
  type SeedReport,
} from '../run/run-seeds.js';

/** `CLOUDLESS_SEEDS=50` runs fewer seeds for a quick check. */
const SEED_COUNT = Number(process.env['CLOUDLESS_SEEDS'] ?? 500);
/** Two of five worlds have several coordinators. */
const GROUP_COUNT = Math.floor(SEED_COUNT * 0.4);
const SEEDS = [
  ...seedsFrom(1, SEED_COUNT - GROUP_COUNT),
  ...seedsFrom(FIRST_SEED_OF_GROUPS, GROUP_COUNT),
];
/** Seeds that run a second time, to compare the traces. */
const REPEATED_SEEDS = [3, 57, 101, 142, 199, 260, 3, 57, 101, 142]
  .map((seed, index) => (index < 6 ? seed : FIRST_SEED_OF_GROUPS + seed))
  .filter((seed) => SEEDS.includes(seed));

/** Hundreds of worlds run here, which takes long on a busy machine. */
jest.setTimeout(30 * 60_000);

describe('SimCluster', () => {
  it(`keeps all invariants and converges in ${SEED_COUNT} worlds with one and with several coordinators, and gives equal traces for equal seeds`, async () => {
    const reports = await run(SEEDS);
    const failed = [...reports.values()].filter(({ violations }) => violations.length > 0);
    expect(failed.map(describeFailure).join('\n\n')).toBe('');
    expect(reports.size).toBe(SEED_COUNT);
    const again = await run(REPEATED_SEEDS);
    const different = REPEATED_SEEDS.filter(
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
