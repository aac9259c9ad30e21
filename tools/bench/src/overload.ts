// Creates beyond the capacity of a coordinator with live agents: 300 at the same moment, then at the
// highest rate that the coordinator sustains, then at five times that rate without waiting for
// answers. Goodput is the number of acknowledged creates per second. Arguments: number of agents
// (default 1 000), seconds of each measurement (default 20).
import { createGrpcTransport } from '@connectrpc/connect-node';
import { createCoordinatorClient, readErrorDetails, type CoordinatorClient } from '@cloudless/api';
import { systemClock } from '@cloudless/app-kit';
import { sleep } from '@cloudless/base';
import { RealCluster } from '@cloudless/e2e';
import { AgentProcesses } from './member-processes.js';
import { readCpuSeconds } from './process-figures.js';
import { printReport, summarise } from './report.js';
import { Violations } from './violations.js';

const [AGENTS = 1_000, SECONDS = 20] = process.argv
  .slice(2)
  .filter((text) => /^\d+$/.test(text))
  .map(Number);
const SIMULTANEOUS = 300;
/** Calls that wait for answers at a time while the sustained rate is measured. */
const SUSTAINED_CONCURRENCY = 64;
const OVERLOAD_FACTOR = 5;
/** Pause between two bursts of the overload, milliseconds. */
const BURST_MS = 20;
/** Connections of the clients. */
const CONNECTIONS = 8;
/** Least goodput under overload as a share of the sustained rate. */
const GOODPUT_SHARE = 0.8;
/** Pause between two reads beside the creates, milliseconds. */
const READ_PAUSE_MS = 100;

/** Outcomes of the creates of one measurement. */
class Outcomes {
  readonly latenciesMs: number[] = [];
  refused = 0;
  /** Texts of failures other than a refusal because of overload. */
  readonly failures = new Set<string>();

  async count(create: Promise<unknown>): Promise<void> {
    const startedAt = systemClock.now();
    try {
      await create;
      this.latenciesMs.push(systemClock.now() - startedAt);
    } catch (reason) {
      const { reason: word } = readErrorDetails(reason as Parameters<typeof readErrorDetails>[0]);
      if (word === 'SERVER_OVERLOADED') this.refused += 1;
      else this.failures.add(String(reason));
    }
  }
}

const violations = new Violations();
const round = (value: number): number => Math.round(value * 100) / 100;
const cluster = await RealCluster.start([]);
const { pid } = cluster.coordinatorProcess;
const agents = new AgentProcesses(AGENTS);
const clients: readonly CoordinatorClient[] = Array.from({ length: CONNECTIONS }, () =>
  createCoordinatorClient(createGrpcTransport({ baseUrl: cluster.url })),
);
let created = 0;

function createOne(): Promise<unknown> {
  const number = (created += 1);
  const client = clients[number % CONNECTIONS] ?? cluster.client;
  const resources = { requests: { cpuMillis: 1, memoryBytes: 1_024n ** 2n } };
  const spec = { command: ['serve'], replicas: 1, resources };
  return client.createWorkload({ name: `load-${number}`, spec });
}

/**
 * Measures creates that `run` starts, beside one reader.
 * @param run - Resolves when all its creates have an answer.
 */
async function measure(run: (outcomes: Outcomes) => Promise<void>) {
  const outcomes = new Outcomes();
  const reading = new AbortController();
  const readsMs: number[] = [];
  const reads = (async () => {
    while (!reading.signal.aborted) {
      const startedAt = systemClock.now();
      await cluster.client.getServerInfo({});
      readsMs.push(systemClock.now() - startedAt);
      await sleep(systemClock, READ_PAUSE_MS);
    }
  })();
  const [cpuBefore, startedAt] = [readCpuSeconds(pid), systemClock.now()];
  await run(outcomes);
  const seconds = (systemClock.now() - startedAt) / 1_000;
  const cpuSeconds = readCpuSeconds(pid) - cpuBefore;
  reading.abort();
  await reads;
  const acknowledged = outcomes.latenciesMs.length;
  violations.checkZero(outcomes.failures.size, `failures: ${[...outcomes.failures].join('; ')}`);
  return {
    acknowledged,
    refused: outcomes.refused,
    seconds: round(seconds),
    perSecond: round(acknowledged / seconds),
    perCpuSecond: round(acknowledged / cpuSeconds),
    cpuSeconds: round(cpuSeconds),
    createMs: summarise(outcomes.latenciesMs),
    readMs: summarise(readsMs),
  };
}

async function runClosedLoop(outcomes: Outcomes): Promise<void> {
  const endsAt = systemClock.now() + SECONDS * 1_000;
  const runOne = async (): Promise<void> => {
    while (systemClock.now() < endsAt) await outcomes.count(createOne());
  };
  await Promise.all(Array.from({ length: SUSTAINED_CONCURRENCY }, runOne));
}

async function runOpenLoop(outcomes: Outcomes, perSecond: number): Promise<void> {
  const startedAt = systemClock.now();
  const open = new Set<Promise<void>>();
  let sent = 0;
  for (let elapsedMs = 0; elapsedMs < SECONDS * 1_000; elapsedMs = systemClock.now() - startedAt) {
    for (const due = (elapsedMs / 1_000) * perSecond; sent < due; sent += 1) {
      const call: Promise<void> = outcomes.count(createOne()).finally(() => open.delete(call));
      open.add(call);
    }
    await sleep(systemClock, BURST_MS);
  }
  await Promise.all(open);
}

try {
  await agents.start(cluster.url, {});
  while ((await agents.countConnected()) < AGENTS) await sleep(systemClock, 200);
  const simultaneous = await measure(async (outcomes) => {
    await Promise.all(Array.from({ length: SIMULTANEOUS }, () => outcomes.count(createOne())));
  });
  const sustained = await measure(runClosedLoop);
  const offeredPerSecond = OVERLOAD_FACTOR * sustained.perSecond;
  const overload = await measure((outcomes) => runOpenLoop(outcomes, offeredPerSecond));
  violations.checkZero(simultaneous.refused, `of ${SIMULTANEOUS} simultaneous creates refused`);
  const share = round(overload.perSecond / sustained.perSecond);
  violations.check(
    share >= GOODPUT_SHARE,
    `goodput under overload is ${share} of the sustained rate, must be at least ${GOODPUT_SHARE}`,
  );
  printReport('overload', {
    agents: AGENTS,
    simultaneous,
    sustained,
    overload: { offeredPerSecond: round(offeredPerSecond), ...overload },
    goodputShare: share,
    violations: violations.texts,
  });
} finally {
  agents.kill();
  await cluster.stop();
}
process.exit(violations.exitCode());
