// Start of a coordinator on a stored cluster: CPU time and memory until the coordinator serves, and
// until the first passes of its controllers are done; then bytes of the heap for each replica, after
// a collection, without those of an empty coordinator. Sizes as arguments, default 100 000 replicas:
// nx run bench:start -- --replicas 0,100000,1000000
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { systemClock } from '@cloudless/app-kit';
import { sleep } from '@cloudless/base';
import { RunningProgram, findBundle } from '@cloudless/e2e';
import { readCpuSeconds, readMemoryBytes } from './process-figures.js';
import { printReport, summarise } from './report.js';
import { writeStoredCluster } from './stored-cluster.js';
import { Violations } from './violations.js';

const SEED = 1;
const REPLICAS_PER_WORKLOAD = 100;
const MAX_NODES = 5_000;
const REPLICAS_PER_NODE = 20;
/** The coordinator counts as settled when it used less than this share of a core for a second. */
const IDLE_SHARE = 0.1;
const SAMPLE_MS = 1_000;
/** Most bytes of the heap for each replica; 990 were measured with 100 replicas in a workload. */
const MAX_BYTES_PER_REPLICA = 1_200;
/** Smaller clusters say nothing about the bytes of a replica. */
const MIN_MEASURED_REPLICAS = 50_000;
/** Script that measures the heap at a signal. */
const HEAP_METER = new URL('heap-on-signal.mjs', import.meta.url).href;

const violations = new Violations();
const { values } = parseArgs({
  options: {
    replicas: { type: 'string', default: '100000' },
    runs: { type: 'string', default: '3' },
    'node-options': { type: 'string', default: '' },
  },
});

/** Figures of one start. */
interface Start {
  readonly cpuMsUntilReady: number;
  readonly cpuMsUntilSettled: number;
  readonly memoryMb: number;
  /** Workloads that the first passes changed. */
  readonly changedWorkloads: number;
  /** Used bytes of the heap after a collection. */
  readonly heapBytes: number;
}

async function measureStart(directory: string, replicas: number): Promise<Start> {
  const coordinator = RunningProgram.start(
    process.execPath,
    [
      ...['--expose-gc', '--import', HEAP_METER],
      ...values['node-options'].split(' ').filter((option) => option !== ''),
      ...[findBundle('coordinator'), '--tls', 'off', '--port', '0', '--ops-port', '0'],
      // The nodes have no agents; a long lease keeps them from being lost.
      ...['--data-dir', directory, '--lease', '10m'],
    ],
    {},
  );
  try {
    const ready = await coordinator.waitForLog('coordinator ready');
    const cpuMsUntilReady = 1_000 * readCpuSeconds(coordinator.pid);
    const cpuMsUntilSettled = 1_000 * (await waitUntilSettled(coordinator.pid));
    const memoryMb = Math.round(readMemoryBytes(coordinator.pid) / 1e6);
    await checkReplicas(String(ready['opsUrl']), replicas);
    const changedWorkloads = coordinator.lines.filter((line) =>
      line.includes('"workload advanced"'),
    ).length;
    process.kill(coordinator.pid, 'SIGUSR2');
    const { heapUsed } = await coordinator.waitForLog('heap measured');
    return {
      ...{ cpuMsUntilReady, cpuMsUntilSettled, memoryMb, changedWorkloads },
      heapBytes: Number(heapUsed),
    };
  } finally {
    await coordinator.kill('SIGTERM');
  }
}

/** @returns CPU seconds of the process when it has become idle. */
async function waitUntilSettled(pid: number): Promise<number> {
  for (let before = readCpuSeconds(pid); ;) {
    await sleep(systemClock, SAMPLE_MS);
    const now = readCpuSeconds(pid);
    if (now - before < (IDLE_SHARE * SAMPLE_MS) / 1_000) return before;
    before = now;
  }
}

/** Checks that the coordinator has loaded all replicas. */
async function checkReplicas(opsUrl: string, replicas: number): Promise<void> {
  const text = await (await fetch(new URL('/metrics', opsUrl))).text();
  const counts = [...text.matchAll(/^cloudless_replicas\{[^}]*\} (\d+)$/gm)];
  const loaded = counts.reduce((sum, [, count]) => sum + Number(count), 0);
  violations.check(loaded === replicas, `${loaded} replicas loaded, ${replicas} are stored`);
}

async function measureCluster(replicas: number, runCount: number): Promise<readonly Start[]> {
  const directory = await mkdtemp(join(tmpdir(), 'cloudless-start-'));
  try {
    await writeStoredCluster(join(directory, 'coordinator'), {
      nodes: countNodes(replicas),
      workloads: replicas / REPLICAS_PER_WORKLOAD,
      replicasPerWorkload: REPLICAS_PER_WORKLOAD,
      seed: SEED,
    });
    const runs: Start[] = [];
    // The first start stores the state of the rollouts, which the written records do not have.
    await measureStart(join(directory, 'coordinator'), replicas);
    for (let run = 0; run < runCount; run += 1)
      runs.push(await measureStart(join(directory, 'coordinator'), replicas));
    return runs;
  } finally {
    await rm(directory, { recursive: true });
  }
}

function countNodes(replicas: number): number {
  return Math.min(MAX_NODES, Math.max(1, Math.ceil(replicas / REPLICAS_PER_NODE)));
}

const [empty] = await measureCluster(0, 1);
const starts: unknown[] = [];
for (const replicas of values.replicas.split(',').map(Number)) {
  const runs = await measureCluster(replicas, Number(values.runs));
  const heapBytes = Math.min(...runs.map((run) => run.heapBytes)) - (empty?.heapBytes ?? 0);
  const bytesPerReplica = replicas === 0 ? 0 : Math.round(heapBytes / replicas);
  violations.check(
    replicas < MIN_MEASURED_REPLICAS || bytesPerReplica <= MAX_BYTES_PER_REPLICA,
    `${bytesPerReplica} bytes of the heap for each replica, at most ${MAX_BYTES_PER_REPLICA} may be`,
  );
  starts.push({
    replicas,
    nodes: countNodes(replicas),
    cpuMsUntilReady: summariseFigure(runs, 'cpuMsUntilReady'),
    cpuMsUntilSettled: summariseFigure(runs, 'cpuMsUntilSettled'),
    memoryMb: summariseFigure(runs, 'memoryMb'),
    changedWorkloads: summariseFigure(runs, 'changedWorkloads'),
    bytesPerReplica,
  });
}
printReport('start', {
  unit: 'CPU milliseconds of the process, resident MB, bytes of the heap after a collection',
  aim: '100 000 replicas 1.5 s, 1 000 000 replicas 15 s',
  seed: SEED,
  starts,
  violations: violations.texts,
});
process.exit(violations.exitCode());

function summariseFigure(runs: readonly Start[], figure: keyof Start) {
  return summarise(runs.map((run) => run[figure]));
}
