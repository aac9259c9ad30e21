// Runs a cluster under churn for some minutes and checks that memory, open files and handles of its
// processes do not grow. --minutes N (default 20), --warm-up N (minutes; default a quarter of the
// run, at most 5): only samples after the warm-up count. --seed N (default 1).
import { parseArgs } from 'node:util';
import { createSeededRandom, sleep } from '@cloudless/base';
import { RealCluster, SERVER_COMMAND } from '@cloudless/e2e';
import { systemClock } from '@cloudless/app-kit';
import { Churn } from './soak-churn.js';
import { readMemoryBytes, countOpenFiles } from './process-figures.js';
import { printReport } from './report.js';
import { Violations } from './violations.js';

const { values } = parseArgs({
  options: { minutes: { type: 'string' }, 'warm-up': { type: 'string' }, seed: { type: 'string' } },
});
const minutes = Number(values.minutes ?? 20);
const warmUpMinutes = Number(values['warm-up'] ?? Math.min(5, minutes / 4));
const seed = Number(values.seed ?? 1);
/** Interval of the samples, milliseconds. */
const SAMPLE_MS = 5_000;
/** Time limit for the end of running actions, milliseconds. */
const END_WITHIN_MS = 60_000;
/**
 * Growth that counts as noise: the heap of Node varies by tens of MB, and client connections come
 * and go.
 */
const ALLOWED = {
  memoryMb: { share: 0.25, margin: 30 },
  openFiles: { share: 0.25, margin: 30 },
  handles: { share: 0.25, margin: 30 },
} as const;
const AGENTS = ['agent-1', 'agent-2', 'agent-3'];

interface Sample {
  readonly atMs: number;
  readonly memoryMb: number;
  readonly files: number;
  readonly handles: number;
}

/** Returns the number of handles of the Node event loop, as the process itself reports it. */
async function readHandles(opsUrl: string): Promise<number> {
  const text = await (await fetch(`${opsUrl}/metrics`)).text();
  return Number(/^nodejs_active_resources_total (\d+)$/m.exec(text)?.[1] ?? NaN);
}

async function takeSample(pid: number, opsUrl: string | undefined): Promise<Sample> {
  return {
    atMs: systemClock.now(),
    memoryMb: readMemoryBytes(pid) / 1e6,
    files: countOpenFiles(pid),
    handles: opsUrl === undefined ? Number.NaN : await readHandles(opsUrl),
  };
}

/** Returns the growth of a figure per hour by least squares. */
function computeGrowthPerHour(
  samples: readonly Sample[],
  figure: (sample: Sample) => number,
): number {
  const points = samples
    .map((sample) => [sample.atMs / 3_600_000, figure(sample)] as const)
    .filter(([, y]) => !Number.isNaN(y));
  const mean = (list: readonly number[]): number =>
    list.reduce((sum, value) => sum + value, 0) / list.length;
  const [meanX, meanY] = [mean(points.map(([x]) => x)), mean(points.map(([, y]) => y))];
  const covariance = points.reduce((sum, [x, y]) => sum + (x - meanX) * (y - meanY), 0);
  return covariance / points.reduce((sum, [x]) => sum + (x - meanX) ** 2, 0);
}

const round = (value: number): number => Math.round(value * 10) / 10;

/** Summarises each figure; undefined for a figure that was never read. */
function describe(samples: readonly Sample[]) {
  const figures = (figure: (sample: Sample) => number) => {
    const known = samples.map(figure).filter((value) => !Number.isNaN(value));
    if (known.length === 0) return undefined;
    const half = Math.floor(known.length / 2);
    const median = (list: readonly number[]): number =>
      [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)] ?? NaN;
    return {
      first: round(known[0] ?? NaN),
      medianOfFirstHalf: round(median(known.slice(0, half))),
      medianOfSecondHalf: round(median(known.slice(half))),
      max: round(Math.max(...known)),
      growthPerHour: round(computeGrowthPerHour(samples, figure)),
    };
  };
  return {
    memoryMb: figures(({ memoryMb }) => memoryMb),
    openFiles: figures(({ files }) => files),
    handles: figures(({ handles }) => handles),
  };
}

const violations = new Violations();
const cluster = await RealCluster.start();
try {
  const churn = new Churn(cluster, createSeededRandom(seed), AGENTS);
  const spec = {
    command: SERVER_COMMAND,
    ports: [{ name: 'http', containerPort: 80 }],
    replicas: 3,
  };
  await cluster.client.createWorkload({ name: 'steady', spec });
  await cluster.waitUntilSettled('steady');
  const startedAt = systemClock.now();
  const until = startedAt + minutes * 60_000;
  const churning = churn.run(() => systemClock.now() < until);
  const samples = new Map<string, Sample[]>();
  while (systemClock.now() < until) {
    await sleep(systemClock, SAMPLE_MS);
    const pids: readonly (readonly [string, number, string | undefined])[] = [
      ['coordinator', cluster.coordinatorProcess.pid, cluster.opsUrl],
      ['agent-1', cluster.requireAgent('agent-1').pid, undefined],
    ];
    for (const [name, pid, opsUrl] of pids) {
      const list = samples.get(name) ?? [];
      list.push(await takeSample(pid, opsUrl));
      samples.set(name, list);
    }
    const last = samples.get('coordinator')?.at(-1);
    process.stderr.write(
      `${Math.round((systemClock.now() - startedAt) / 1_000)} s: ${JSON.stringify(last)} ${churn.progress}\n`,
    );
  }
  // A running action may wait for a replica that waits for its restart back-off.
  await Promise.race([churning, sleep(systemClock, END_WITHIN_MS)]);
  const summaries = [...samples].map(
    ([name, list]) =>
      [
        name,
        describe(list.filter(({ atMs }) => atMs >= startedAt + warmUpMinutes * 60_000)),
      ] as const,
  );
  for (const [name, figures] of summaries) {
    for (const figure of ['memoryMb', 'openFiles', 'handles'] as const) {
      const halves = figures[figure];
      if (figure === 'handles' && name !== 'coordinator') continue; // only the coordinator reports them
      const [first, second] = [halves?.medianOfFirstHalf, halves?.medianOfSecondHalf];
      violations.checkFlat(`${figure} of ${name}`, { first, second }, ALLOWED[figure]);
    }
  }
  violations.check(
    churn.serverFaults.length === 0,
    `calls failed inside: ${churn.serverFaults.slice(0, 3).join('; ')}`,
  );
  printReport('soak', {
    minutes,
    warmUpMinutes,
    seed,
    ...churn.counts,
    processes: Object.fromEntries(summaries),
    violations: violations.texts,
  });
} finally {
  await cluster.stop();
}
process.exit(violations.exitCode());
