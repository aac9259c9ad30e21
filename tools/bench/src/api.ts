// Reads of a coordinator with 5 000 nodes and 150 000 replicas, over gRPC or, with --connect, the
// Connect protocol: first on a coordinator at rest after its first passes, then beside live agents,
// writers and watchers; 1 and 32 calls at a time.
import { join } from 'node:path';
import { createConnectTransport } from '@connectrpc/connect-node';
import {
  WatchNodesResponse_Kind,
  WatchWorkloadsResponse_Kind,
  createCoordinatorClient,
  readErrorDetails,
} from '@cloudless/api';
import { systemClock } from '@cloudless/app-kit';
import { createSeededRandom, sleep } from '@cloudless/base';
import { RealCluster } from '@cloudless/e2e';
import { CHURN_NAMESPACE, Watchers, Writers, startAgents } from './api-load.js';
import { fillStore, formatStoredNodeId, formatStoredWorkload } from './api-store.js';
import { readCpuSeconds, readCpuTimes, readMemoryBytes } from './process-figures.js';
import { printReport, summarise } from './report.js';
import { Violations } from './violations.js';

const numbers = process.argv.slice(2).filter((text) => /^\d+$/.test(text));
const SIZE = {
  nodes: 5_000,
  workloads: Number(numbers[0] ?? 1_500),
  replicasPerWorkload: 100,
};
/** Measured calls of each kind. */
const CALLS = Number(numbers[1] ?? 200);
/** Leaves out the part beside agents, writers and watchers. */
const isQuietOnly = process.argv.includes('--quiet');
/** Calls by the Connect protocol instead of gRPC. */
const isConnect = process.argv.includes('--connect');
/** Live agents beside the stored nodes, which have none. */
const AGENTS = 50;
/** Watches of the workloads that change, each on its own connection. */
const WATCHERS = 50;
/** Pause of the writer after each change, milliseconds. */
const WRITE_PAUSE_MS = 250;
/** Time for which the load alone, or the coordinator at rest, is measured, milliseconds. */
const LOAD_MS = 10_000;
/** The coordinator is settled when it used less than this share of a core for a second. */
const SETTLED_SHARE = 0.05;
const CONCURRENCY = 32;
/** Pause before a refused call is repeated, milliseconds. */
const RETRY_MS = 500;
const SEED = 1;

const random = createSeededRandom(SEED);
const violations = new Violations();
const round = (value: number): number => Math.round(value * 1_000) / 1_000;

/**
 * Runs calls, several at a time. Repeats a call that the server refuses because of overload.
 * @returns The duration of each call in milliseconds, without refused attempts.
 */
async function measureCalls(
  count: number,
  concurrency: number,
  call: (index: number) => Promise<unknown>,
): Promise<{ readonly samples: readonly number[]; readonly refused: number }> {
  const samples: number[] = [];
  let [next, refused] = [0, 0];
  const runOne = async (): Promise<void> => {
    while (next < count) {
      const index = next++;
      for (;;) {
        const startedAt = systemClock.now();
        const isServed = await call(index).then(
          () => true,
          (reason: unknown) => {
            if (
              readErrorDetails(reason as Parameters<typeof readErrorDetails>[0]).reason !==
              'SERVER_OVERLOADED'
            )
              throw reason;
            return false;
          },
        );
        if (isServed) {
          samples.push(systemClock.now() - startedAt);
          break;
        }
        refused += 1;
        await sleep(systemClock, RETRY_MS);
      }
    }
  };
  await Promise.all(Array.from({ length: concurrency }, runOne));
  return { samples, refused };
}

// The stored nodes have no agents; a long lease keeps them from being lost during the benchmark.
process.env['CLOUDLESS_COORDINATOR_LEASE'] = '10m';
const cluster = await RealCluster.start([], (directory) =>
  fillStore(join(directory, 'coordinator'), SIZE, random),
);
const { pid } = cluster.coordinatorProcess;
const client = isConnect
  ? createCoordinatorClient(createConnectTransport({ baseUrl: cluster.url, httpVersion: '2' }))
  : cluster.client;
const pickName = (): string => formatStoredWorkload(Math.floor(random.next() * SIZE.workloads));
const pickPageToken = (tokens: readonly string[]): string =>
  tokens[Math.floor(random.next() * tokens.length)] ?? '';

/** Reads a list once. @returns The token of each page. */
async function listTokens(
  list: (pageToken: string) => Promise<{ readonly nextPageToken: string }>,
): Promise<readonly string[]> {
  const tokens = [''];
  for (;;) {
    const { nextPageToken } = await list(tokens.at(-1) ?? '');
    if (nextPageToken === '') return tokens;
    tokens.push(nextPageToken);
  }
}

const workloadTokens = await listTokens((pageToken) =>
  client.listWorkloads({ pageSize: 100, pageToken }),
);
const nodeTokens = await listTokens((pageToken) => client.listNodes({ pageSize: 100, pageToken }));
const calls: Readonly<Record<string, (index: number) => Promise<unknown>>> = {
  getWorkloadOf100Replicas: () => client.getWorkload({ name: pickName() }),
  getNode: (index) => client.getNode({ nodeId: formatStoredNodeId(index * 7, SIZE) }),
  listWorkloadsPageOf100: () =>
    client.listWorkloads({ pageSize: 100, pageToken: pickPageToken(workloadTokens) }),
  listNodesPageOf100: () =>
    client.listNodes({ pageSize: 100, pageToken: pickPageToken(nodeTokens) }),
  listEventsPageOf100: () => client.listEvents({ pageSize: 100, newestFirst: true }),
  scrapeMetrics: async () => (await fetch(`${cluster.opsUrl}/metrics`)).text(),
};

/**
 * Measures each kind of call.
 * @param idleCpuShare - CPU seconds per second that the load beside the calls costs.
 */
async function measureAll(concurrency: number, idleCpuShare: number) {
  const results: Record<string, unknown> = {};
  for (const [name, call] of Object.entries(calls)) {
    const count = name === 'scrapeMetrics' ? CALLS / 10 : CALLS;
    await measureCalls(count / 3, concurrency, call); // warm up
    const before = readCpuTimes(pid);
    const clientBefore = readCpuTimes(process.pid);
    const startedAt = systemClock.now();
    const { samples, refused } = await measureCalls(count, concurrency, call);
    const seconds = (systemClock.now() - startedAt) / 1_000;
    const after = readCpuTimes(pid);
    const clientAfter = readCpuTimes(process.pid);
    const toMsPerCall = (cpuSeconds: number): number => round((cpuSeconds * 1_000) / count);
    results[name] = {
      cpuMsPerCall: toMsPerCall(after.all - before.all - idleCpuShare * seconds),
      subtractedCpuMsPerCall: toMsPerCall(idleCpuShare * seconds),
      mainThreadCpuMsPerCall: toMsPerCall(after.mainThread - before.mainThread),
      clientCpuMsPerCall: toMsPerCall(clientAfter.all - clientBefore.all),
      refused,
      wallMs: summarise(samples),
    };
  }
  return results;
}

/**
 * Reads a watch until everything that exists has been sent.
 * @param countObjects - Returns the number of objects in a message; undefined ends the watch.
 */
async function measureWatch<Message>(
  open: (signal: AbortSignal) => AsyncIterable<Message>,
  countObjects: (message: Message) => number | undefined,
) {
  const watch = new AbortController();
  const cpuBefore = readCpuSeconds(pid);
  const startedAt = systemClock.now();
  let objects = 0;
  for await (const message of open(watch.signal)) {
    const count = countObjects(message);
    if (count === undefined) break;
    objects += count;
  }
  const cpuSeconds = readCpuSeconds(pid) - cpuBefore;
  const seconds = (systemClock.now() - startedAt) / 1_000;
  watch.abort();
  return {
    objects,
    seconds: round(seconds),
    coordinatorCpuSeconds: round(cpuSeconds),
    cpuUsPerObject: round((cpuSeconds * 1e6) / objects),
  };
}

const measureWorkloadWatch = () =>
  measureWatch(
    (signal) => cluster.client.watchWorkloads({ namespace: 'default' }, { signal }),
    ({ kind, workload }) =>
      kind === WatchWorkloadsResponse_Kind.SYNCED
        ? undefined
        : (workload?.status?.replicas.length ?? 0),
  );
const measureNodeWatch = () =>
  measureWatch(
    (signal) => cluster.client.watchNodes({}, { signal }),
    ({ kind }) => (kind === WatchNodesResponse_Kind.SYNCED ? undefined : 1),
  );

const watchers = new Watchers();
const agents: { kill(signal: 'SIGKILL'): unknown }[] = [];
const writers = new Writers(cluster.client, WRITE_PAUSE_MS);
/** Measures each kind of call beside agents, a writer and watchers. */
async function measureLoaded() {
  agents.push(await startAgents(cluster.url, AGENTS));
  await writers.prepare();
  const measureLoad = async () => {
    const [cpuBefore, writesBefore, messagesBefore] = [
      readCpuSeconds(pid),
      writers.writes,
      watchers.messages,
    ];
    await sleep(systemClock, LOAD_MS);
    return {
      cpuShareOfOneCore: round((readCpuSeconds(pid) - cpuBefore) / (LOAD_MS / 1_000)),
      writes: writers.writes - writesBefore,
      watchMessages: watchers.messages - messagesBefore,
    };
  };
  writers.start();
  await sleep(systemClock, 1_000);
  const writersOnly = await measureLoad();
  watchers.start(WATCHERS, (signal) =>
    cluster.client.watchWorkloads({ namespace: CHURN_NAMESPACE }, { signal }),
  );
  await sleep(systemClock, 1_000);
  const writersAndWatchers = await measureLoad();
  return {
    writersOnly,
    writersAndWatchers,
    oneCallAtATime: await measureAll(1, writersAndWatchers.cpuShareOfOneCore),
    [`calls${CONCURRENCY}AtATime`]: await measureAll(
      CONCURRENCY,
      writersAndWatchers.cpuShareOfOneCore,
    ),
    memoryMb: Math.round(readMemoryBytes(pid) / 1e6),
  };
}

/**
 * Waits until the first passes are done.
 * @returns CPU seconds per second of the coordinator at rest.
 */
async function measureRest(): Promise<number> {
  for (let before = readCpuSeconds(pid); ;) {
    await sleep(systemClock, 1_000);
    const now = readCpuSeconds(pid);
    if (now - before < SETTLED_SHARE) break;
    before = now;
  }
  const before = readCpuSeconds(pid);
  await sleep(systemClock, LOAD_MS);
  return (readCpuSeconds(pid) - before) / (LOAD_MS / 1_000);
}

try {
  const restCpuShare = await measureRest();
  const quiet = {
    cpuShareAtRest: round(restCpuShare),
    memoryMb: Math.round(readMemoryBytes(pid) / 1e6),
    oneCallAtATime: await measureAll(1, restCpuShare),
    [`calls${CONCURRENCY}AtATime`]: await measureAll(CONCURRENCY, restCpuShare),
    watchAllReplicas: [await measureWorkloadWatch(), await measureWorkloadWatch()],
    watchAllNodes: [await measureNodeWatch(), await measureNodeWatch()],
  };
  const stored = SIZE.workloads * SIZE.replicasPerWorkload;
  for (const { objects } of quiet.watchAllReplicas)
    violations.check(objects === stored, `a watch showed ${objects} of ${stored} replicas`);
  for (const { objects } of quiet.watchAllNodes)
    violations.check(objects === SIZE.nodes, `a watch showed ${objects} of ${SIZE.nodes} nodes`);

  const loaded = isQuietOnly ? undefined : await measureLoaded();
  violations.checkZero(watchers.failures, 'watches that ended early');
  printReport('api', {
    ...SIZE,
    replicas: stored,
    agents: AGENTS,
    watchers: WATCHERS,
    seed: SEED,
    transport: `${isConnect ? 'Connect' : 'gRPC'} without TLS; calls on one connection, each watch on its own by gRPC; client and server are processes of the same machine`,
    cpu: 'CPU time of the coordinator; that of the coordinator at rest, or of the load alone, in the same time is subtracted, see subtractedCpuMsPerCall. mainThreadCpuMsPerCall: its main thread alone, nothing subtracted. clientCpuMsPerCall: the process of the benchmark, which is the client, and in the part with load also the writer and the watches',
    quiet,
    loaded,
    violations: violations.texts,
  });
} finally {
  watchers.stop();
  await writers.stop().catch(() => undefined);
  for (const process of agents) process.kill('SIGKILL');
  await cluster.stop();
}
process.exit(violations.exitCode());
