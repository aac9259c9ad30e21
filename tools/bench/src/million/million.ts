// The whole path of many replicas: created, placed, committed, ordered, acknowledged and ready, on
// many light agents in another process; then the loss of a zone, a rolling update, and a restart of
// the coordinator. Commits are flushed to disk.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { fromConnectError } from '@cloudless/api';
import { systemClock } from '@cloudless/app-kit';
import { sleep } from '@cloudless/base';
import { printReport } from '../report.js';
import { Violations } from '../violations.js';
import { ZONES, type AgentCounts } from './agents-protocol.js';
import { findExceeded, parseLimits } from './limits.js';
import { LightAgents } from './light-agents.js';
import { MeasuredCoordinator, sumOf } from './measured-coordinator.js';
import { PhaseRecorder, type PhaseFigures } from './phase-recorder.js';
import { splitCosts } from './time-per-replica.js';

const { values } = parseArgs({
  options: {
    replicas: { type: 'string', default: '10000' },
    agents: { type: 'string', default: '500' },
    'per-workload': { type: 'string', default: '1000' },
    // 250 on each of 5,000 agents are 1,250,000 places, too few for 1,000,000 after a loss of a
    // third of them.
    'max-replicas': { type: 'string', default: '320' },
    phases: { type: 'string', default: 'create,zone,update,restart' },
    // Directory of the state of the coordinator: its disk decides what a flush costs.
    directory: { type: 'string', default: tmpdir() },
    // Directory for a CPU profile of the coordinator for each phase; raises its CPU time.
    profile: { type: 'string' },
    // File for the log of the last process of the coordinator.
    log: { type: 'string' },
    // File for the time series, as JSON.
    series: { type: 'string' },
    // Largest figures per replica of the phase `create`, such as commits=0.2,orders=1.1.
    limits: { type: 'string', default: '' },
    // Memory limit of the coordinator's heap, MiB.
    heap: { type: 'string' },
    // Largest semi-space of the coordinator, MiB; 64 as in the unit of `admin install-unit`.
    'semi-space': { type: 'string', default: '64' },
    // Background threads of V8 in the coordinator; default: see coordinatorNodeOptions in
    // install-unit-text.ts.
    'v8-threads': {
      type: 'string',
      default: String(Math.min(4, Math.max(1, availableParallelism() - 1))),
    },
    // Another flag of Node.js for the coordinator, such as --trace-gc; may be repeated.
    'node-flag': { type: 'string', multiple: true, default: [] },
  },
});
const REPLICAS = Number(values.replicas);
const AGENTS = Number(values.agents);
const PER_WORKLOAD = Math.min(Number(values['per-workload']), REPLICAS);
const WORKLOADS = Math.ceil(REPLICAS / PER_WORKLOAD);
const MAX_REPLICAS = Number(values['max-replicas']);
const limits = parseLimits(values.limits);
const phases = new Set(values.phases.split(','));
/** Creates that are under way at the same time. */
const CREATES_IN_FLIGHT = 16;
/** Pause before a refused call is made again, milliseconds. */
const REFUSED_RETRY_MS = 1_000;
/** Share of the workloads that the rolling update changes. */
const UPDATED_SHARE = 0.1;
/** Zone that is lost. */
const LOST_ZONE = 0;

/** A restart that takes longer counts as failed, milliseconds. */
const LONGEST_RESTART_MS = 300_000;

const violations = new Violations();
const countOf = (index: number): number => Math.min(PER_WORKLOAD, REPLICAS - index * PER_WORKLOAD);
const nameOf = (index: number): string => `workload-${index}`;

const directory = await mkdtemp(join(values.directory, 'cloudless-million-'));
const nodeFlags = [
  `--max-semi-space-size=${values['semi-space']}`,
  `--v8-pool-size=${values['v8-threads']}`,
  ...(values.heap === undefined ? [] : [`--max-old-space-size=${values.heap}`]),
  ...values['node-flag'],
];
const coordinator = new MeasuredCoordinator({
  dataDir: directory,
  nodeFlags,
  profileDir: values.profile,
});
const agents = new LightAgents();
const recorder = new PhaseRecorder(coordinator, agents);
const results: Record<string, unknown> = {};

/** Runs tasks, a bounded number at the same time. */
async function runAll(count: number, run: (index: number) => Promise<unknown>): Promise<void> {
  let next = 0;
  const work = async (): Promise<void> => {
    for (let index = next++; index < count; index = next++) await run(index);
  };
  await Promise.all(Array.from({ length: CREATES_IN_FLIGHT }, work));
}

/** Repeats a call that the coordinator refuses because other calls wait, as its error asks for. */
async function retryRefused(call: () => Promise<unknown>): Promise<void> {
  for (;;) {
    try {
      await call();
      return;
    } catch (reason) {
      if (fromConnectError(reason).kind !== 'exhausted') throw reason;
      await sleep(systemClock, REFUSED_RETRY_MS);
    }
  }
}

async function createAll(): Promise<void> {
  const { client } = coordinator;
  await runAll(WORKLOADS, (index) =>
    retryRefused(() =>
      client.createWorkload({
        name: nameOf(index),
        spec: {
          command: ['serve', '--port', '8080'],
          replicas: countOf(index),
          labels: { app: nameOf(index) },
          env: { MODE: 'one' },
          resources: { requests: { cpuMillis: 100, memoryBytes: BigInt(500 * 1024 ** 2) } },
          preStopDelay: durationFromMs(0),
          rollout: {
            minReadyDuration: durationFromMs(0),
            maxSurge: Math.ceil(PER_WORKLOAD / 4),
            maxUnavailable: Math.ceil(PER_WORKLOAD / 4),
          },
        },
      }),
    ),
  );
}

/** Number of workloads that the rolling update changes, and of their replicas. */
const UPDATED_WORKLOADS = Math.max(1, Math.round(WORKLOADS * UPDATED_SHARE));
const UPDATED_REPLICAS = Math.min(REPLICAS, UPDATED_WORKLOADS * PER_WORKLOAD);

async function updateSome(): Promise<void> {
  const { client } = coordinator;
  await runAll(UPDATED_WORKLOADS, (index) =>
    retryRefused(() =>
      client.updateWorkload({
        name: nameOf(index),
        spec: { env: { MODE: 'two' } },
        updateMask: { paths: ['env'] },
      }),
    ),
  );
}

/** True when the coordinator records `REPLICAS` ready replicas, and no other that is wanted. */
async function isReadyRecorded(): Promise<boolean> {
  const metrics = await coordinator.readMetrics();
  return sumOf(metrics, 'cloudless_replicas', 'state="ready"') === REPLICAS;
}

/** Reads the numbers of ready and updated replicas by the API. */
async function readStatus(): Promise<{ ready: number; updated: number; milliseconds: number }> {
  const { client } = coordinator;
  const startedAt = systemClock.now();
  let [ready, updated, pageToken] = [0, 0, ''];
  do {
    const page = await client.listWorkloads({ pageSize: 100, pageToken });
    for (const { status } of page.workloads) {
      ready += status?.readyReplicas ?? 0;
      updated += status?.updatedReplicas ?? 0;
    }
    pageToken = page.nextPageToken;
  } while (pageToken !== '');
  return { ready, updated, milliseconds: Math.round(systemClock.now() - startedAt) };
}

async function checkStatus(phase: string): Promise<void> {
  const { ready, updated } = await readStatus();
  violations.check(ready === REPLICAS, `${phase}: ${ready} of ${REPLICAS} replicas are ready`);
  violations.check(updated === REPLICAS, `${phase}: ${updated} of ${REPLICAS} are updated`);
  const { mostOnOneAgent } = await agents.count();
  violations.check(
    mostOnOneAgent <= MAX_REPLICAS,
    `${phase}: ${mostOnOneAgent} replicas run on one agent, at most ${MAX_REPLICAS} may`,
  );
}

const runsAll = (counts: AgentCounts): boolean => counts.running === REPLICAS;

async function runPhases(): Promise<void> {
  await coordinator.start();
  const joinedAt = systemClock.now();
  await agents.start({ coordinator: coordinator.url, agents: AGENTS, maxReplicas: MAX_REPLICAS });
  const { connections } = await agents.count();
  results['join'] = {
    connections,
    seconds: Math.round(systemClock.now() - joinedAt) / 1_000,
    ...coordinator.readFigures(),
  };
  if (phases.has('create')) {
    await runPhase('create', REPLICAS, createAll, runsAll);
  }
  if (phases.has('zone')) {
    const lost = (await agents.count()).running;
    await runPhase(
      'zone',
      Math.round(lost / ZONES),
      () => agents.loseZone(LOST_ZONE),
      (counts) => runsAll(counts) && counts.admitted < AGENTS,
    );
  }
  if (phases.has('update')) {
    await runPhase(
      'update',
      UPDATED_REPLICAS,
      updateSome,
      (counts) => runsAll(counts) && counts.runningByVersion[2] === UPDATED_REPLICAS,
    );
  }
  if (phases.has('restart')) results['restart'] = await restart();
}

async function runPhase(
  name: string,
  replicas: number,
  begin: () => Promise<unknown>,
  isDone: (counts: AgentCounts) => boolean,
): Promise<void> {
  const figures: PhaseFigures = await coordinator.profile(name, () =>
    recorder.run(name, replicas, begin, isDone, isReadyRecorded),
  );
  results[name] = {
    ...figures,
    costOfEachTenth: splitCosts(recorder.series[name] ?? [], replicas, 10),
  };
  if (name === 'create')
    for (const text of findExceeded(figures.perReplica, limits)) violations.check(false, text);
  process.stderr.write(`${name}: ${JSON.stringify(figures)}\n`);
  await checkStatus(name);
}

/** Waits until a number of agents is admitted. Returns for how long the main loops stood still. */
async function waitForAgents(wanted: number): Promise<{
  /** Agents whose process stands still for a lease are lost, whatever the coordinator does. */
  readonly agentsLongestStallMs: number;
  readonly longestSweepLagMs: number;
}> {
  const startedAt = systemClock.now();
  let [agentsLongestStallMs, longestSweepLagMs] = [0, 0];
  for (;;) {
    const { admitted, longestStallMs } = await agents.count();
    const metrics = await coordinator.readMetrics();
    const sweepLagMs = 1_000 * sumOf(metrics, 'cloudless_lease_sweep_lag_seconds');
    agentsLongestStallMs = Math.max(agentsLongestStallMs, longestStallMs);
    longestSweepLagMs = Math.max(longestSweepLagMs, Math.round(sweepLagMs));
    if (admitted >= wanted) return { agentsLongestStallMs, longestSweepLagMs };
    if (systemClock.now() - startedAt > LONGEST_RESTART_MS)
      throw new Error(`restart: ${admitted} of ${wanted} agents are admitted`);
    await sleep(systemClock, 500);
  }
}

/** Kills the coordinator and starts it again on the same state. */
async function restart(): Promise<Record<string, unknown>> {
  const before = await agents.count();
  await coordinator.stop('SIGKILL');
  const startedAt = systemClock.now();
  await coordinator.start();
  const readySeconds = (systemClock.now() - startedAt) / 1_000;
  const readyCpuSeconds = coordinator.readFigures().cpuSeconds;
  const stalls = await coordinator.profile('restart', () => waitForAgents(before.admitted));
  const seconds = (systemClock.now() - startedAt) / 1_000;
  const { cpuSeconds, memoryBytes } = coordinator.readFigures();
  await checkStatus('restart');
  const metrics = await coordinator.readMetrics();
  const after = await agents.count();
  violations.checkZero(after.startOrders - before.startOrders, 'start orders after the restart');
  violations.checkZero(after.stopOrders - before.stopOrders, 'stop orders after the restart');
  return {
    secondsUntilReady: readySeconds,
    cpuSecondsUntilReady: readyCpuSeconds,
    secondsUntilAllAgentsAreAdmitted: seconds,
    cpuSecondsUntilAllAgentsAreAdmitted: cpuSeconds,
    memoryMb: Math.round(memoryBytes / 1e6),
    ...stalls,
    nodeLosses: sumOf(metrics, 'cloudless_node_losses_total'),
    orders: sumOf(metrics, 'cloudless_orders_sent_total'),
    ordersAgain: sumOf(metrics, 'cloudless_orders_sent_total', 'again="true"'),
  };
}

try {
  await runPhases();
} catch (reason) {
  violations.check(false, String(reason));
  process.stderr.write(`${coordinator.logLines.slice(-20).join('\n')}\n`);
} finally {
  await coordinator.stop('SIGKILL');
  agents.stop();
  if (values.log !== undefined) await writeFile(values.log, coordinator.logLines.join('\n'));
  if (values.series !== undefined)
    await writeFile(values.series, JSON.stringify(recorder.series, null, 1));
  await rm(directory, { recursive: true, force: true });
}
printReport('million', {
  replicas: REPLICAS,
  agents: AGENTS,
  workloads: WORKLOADS,
  maxReplicasPerAgent: MAX_REPLICAS,
  seed: 'none: nothing is drawn but the pauses of reconnects',
  agentsAre:
    'light agents in one other process: they speak the session protocol, have no runtime and ' +
    'acknowledge each order at once; up to 40 share a connection, in plaintext',
  durable: 'LMDB, each commit flushed',
  nodeFlags,
  ...results,
  violations: violations.texts,
});
process.exit(violations.exitCode());
