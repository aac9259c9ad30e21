// The loss of the leader of several coordinators with many simulated agents, in plaintext: all
// agents follow to the next leader, and no node is lost. The first argument is the number of agents
// (default 5,000); --coordinators N (default 3); --rounds N: how often the leader is killed and
// started again (default 2). Needs etcd.
import { parseArgs } from 'node:util';
import { NodeStatus_Phase as Phase, type CoordinatorClient } from '@cloudless/api';
import { sleep } from '@cloudless/base';
import { ReplicatedCluster, findLeader, type ReplicatedCoordinator } from '@cloudless/e2e';
import { systemClock } from '@cloudless/app-kit';
import { AgentProcesses } from './member-processes.js';
import { NodeObserver } from './node-observer.js';
import { readCpuSeconds, readMemoryBytes } from './process-figures.js';
import { printReport } from './report.js';
import { Violations } from './violations.js';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    coordinators: { type: 'string', default: '3' },
    rounds: { type: 'string', default: '2' },
  },
});
const AGENTS = Number(positionals[0] ?? 5_000);
const COORDINATORS = Number(values.coordinators);
const ROUNDS = Number(values.rounds);
/**
 * Agents of one process. Real agents have cores of their own; here few processes share the cores of
 * this machine with the coordinators, so that they take no more than their part.
 */
const AGENTS_PER_PROCESS = 2_500;
/** Time within which all agents must be back after the loss of the leader, seconds. */
const RETURN_LIMIT_S = 60;
/** Time between two reads of the number of connected agents, milliseconds. */
const POLL_MS = 100;

const toSeconds = (ms: number): number => Math.round(ms / 10) / 100;
const violations = new Violations();
const nodeIds = Array.from({ length: AGENTS }, (_, index) => `node-${index + 1}`);

/** Returns the coordinator that leads; waits until there is one. */
async function waitForLeader(cluster: ReplicatedCluster): Promise<ReplicatedCoordinator> {
  for (;;) {
    const leader = findLeader(cluster.coordinators);
    if (leader !== undefined) return leader;
    await sleep(systemClock, POLL_MS);
  }
}

/** Returns the number of NodeLost events so far. */
async function countLosses(client: CoordinatorClient): Promise<number> {
  let losses = 0;
  for (let pageToken = ''; ;) {
    const { events, nextPageToken } = await client.listEvents({
      reasons: ['NodeLost'],
      pageSize: 1_000,
      pageToken,
      linearizable: true,
    });
    losses += events.reduce((sum, { count }) => sum + Math.max(1, Number(count)), 0);
    if (nextPageToken === '') return losses;
    pageToken = nextPageToken;
  }
}

/** Waits until all agents have a session, or the limit has passed twice. */
async function waitForAgents(sinceMs: number): Promise<number> {
  for (;;) {
    const connected = await agents.countConnected();
    if (connected === AGENTS || systemClock.now() - sinceMs > 2 * RETURN_LIMIT_S * 1_000)
      return connected;
    await sleep(systemClock, POLL_MS);
  }
}

/** Watches the nodes at the leader, and at the next one when the leadership changes. */
async function keepWatching(
  cluster: ReplicatedCluster,
  observer: NodeObserver,
  signal: AbortSignal,
): Promise<void> {
  while (!signal.aborted) {
    const client = await cluster.openClient((await waitForLeader(cluster)).name);
    await observer.watch(client, signal).catch(() => sleep(systemClock, POLL_MS));
  }
}

/** Kills the leader, measures the return of all agents, and starts the coordinator again. */
async function loseLeader(cluster: ReplicatedCluster) {
  const leader = await waitForLeader(cluster);
  const lossesBefore = await countLosses(await cluster.openClient(leader.name));
  const agentCpuBefore = agents.readCpuSeconds();
  const killedAt = systemClock.now();
  await leader.program.kill('SIGKILL');
  const next = await waitForLeader(cluster);
  const electedMs = systemClock.now() - killedAt;
  const { pid } = next.program;
  const cpuBefore = readCpuSeconds(pid);
  const client = await cluster.openClient(next.name);
  const observer = new NodeObserver();
  const watching = new AbortController();
  void keepWatching(cluster, observer, watching.signal);
  await observer.waitForPhases(nodeIds, [Phase.READY]);
  const connected = await waitForAgents(killedAt);
  const backMs = systemClock.now() - killedAt;
  const losses = (await countLosses(client)) - lossesBefore;
  watching.abort();
  violations.checkZero(losses, 'nodes lost although all agents are well');
  violations.check(connected === AGENTS, `only ${connected} of ${AGENTS} agents came back`);
  violations.check(
    backMs <= RETURN_LIMIT_S * 1_000,
    `all agents were back ${toSeconds(backMs)} s after the leader was killed, must be within ${RETURN_LIMIT_S} s`,
  );
  await cluster.startCoordinator(leader.name);
  return {
    secondsUntilTheNextLeader: toSeconds(electedMs),
    secondsUntilAllAreBack: toSeconds(backMs),
    cpuSecondsOfTheNextLeader: Math.round((readCpuSeconds(pid) - cpuBefore) * 10) / 10,
    cpuSecondsOfTheAgents: Math.round(agents.readCpuSeconds() - agentCpuBefore),
    memoryMbOfTheNextLeader: Math.round(readMemoryBytes(pid) / 1e6),
    falseLosses: losses,
  };
}

const cluster = await ReplicatedCluster.start({
  coordinators: COORDINATORS,
  agents: 0,
  tls: 'off',
});
const agents = new AgentProcesses(AGENTS, AGENTS_PER_PROCESS);
try {
  const startedAt = systemClock.now();
  const coordinator = cluster.coordinators.map(({ url }) => url).join(',');
  await agents.start(coordinator, { paced: true });
  const observer = new NodeObserver();
  const watching = new AbortController();
  const client = await cluster.openClient((await waitForLeader(cluster)).name);
  void keepWatching(cluster, observer, watching.signal);
  await observer.waitForPhases(nodeIds, [Phase.READY]);
  watching.abort();
  const joinSeconds = toSeconds(systemClock.now() - startedAt);
  violations.checkZero(await countLosses(client), 'nodes lost while all joined');
  const rounds = [];
  for (let round = 0; round < ROUNDS; round += 1) rounds.push(await loseLeader(cluster));
  printReport('member-failover', {
    agents: AGENTS,
    coordinators: COORDINATORS,
    joinSeconds,
    rounds,
    violations: violations.texts,
  });
} finally {
  agents.kill();
  await cluster.stop();
}
process.exit(violations.exitCode());
