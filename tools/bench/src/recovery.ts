// Time from a failure until the replica is ready again, as a client of WatchEndpoints sees it, with
// real processes. Two failures: kill -9 of the process of each replica; and a silent node, whose
// agent is stopped (SIGSTOP) so that its connections stay open and nothing answers.
import { NodeStatus_Phase as Phase, type CoordinatorClient } from '@cloudless/api';
import { RealCluster, SERVER_COMMAND } from '@cloudless/e2e';
import { systemClock } from '@cloudless/app-kit';
import { EndpointObserver } from './endpoint-observer.js';
import { printReport, summarise } from './report.js';
import { Violations } from './violations.js';

/**
 * Names of the agents. Only one of five nodes is silent at a time, so the replacement brake does
 * not engage, and no node is lost often enough to be quarantined.
 */
const AGENTS = Array.from({ length: 5 }, (_, index) => `agent-${index + 1}`);
const KILL_ROUNDS = 5;
const REPLICAS_PER_KILL_ROUND = 10;
const SILENT_ROUNDS = 10;
const REPLICAS_PER_NODE = 5;

const spec = {
  command: SERVER_COMMAND,
  ports: [{ name: 'http', containerPort: 80 }],
  rollout: { minReadyDuration: { seconds: 0n } },
};

/**
 * Kills the process of each replica of a new workload, one after the other.
 * @returns Milliseconds until each replica was ready again.
 */
async function killEach(cluster: RealCluster, name: string): Promise<readonly number[]> {
  const { client, agentClient } = cluster;
  await client.createWorkload({ name, spec: { ...spec, replicas: REPLICAS_PER_KILL_ROUND } });
  const { status } = await cluster.waitUntilSettled(name);
  const observer = await EndpointObserver.follow(client, name);
  await observer.waitUntil(() => observer.replicas.length === REPLICAS_PER_KILL_ROUND);
  const samples: number[] = [];
  for (const { id, containerId } of status?.replicas ?? []) {
    const { pid } = await agentClient.getContainerStatus({ containerId });
    const back = observer.waitUntilBack(id);
    const startedAt = systemClock.now();
    process.kill(pid, 'SIGKILL');
    samples.push((await back) - startedAt);
  }
  observer.close();
  await client.deleteWorkload({ name });
  await cluster.waitUntilDeleted(name);
  return samples;
}

/**
 * Silences one node after the other by SIGSTOP of its agent.
 * @returns Milliseconds until each replacement was ready.
 */
async function silenceNodes(cluster: RealCluster, name: string): Promise<readonly number[]> {
  const { client } = cluster;
  await client.createWorkload({
    name,
    spec: { ...spec, replicas: AGENTS.length * REPLICAS_PER_NODE },
  });
  await cluster.waitUntilSettled(name);
  const observer = await EndpointObserver.follow(client, name);
  const losses = new Map(AGENTS.map((agent) => [agent, 0]));
  const samples: number[] = [];
  for (let round = 0; round < SILENT_ROUNDS; round += 1) {
    const { status } = await cluster.waitUntilSettled(name);
    const countReady = (agent: string): number =>
      status?.replicas.filter(({ nodeId, ready }) => nodeId === agent && ready).length ?? 0;
    const fewestLosses = Math.min(...losses.values());
    const [victim = ''] = AGENTS.filter((agent) => losses.get(agent) === fewestLosses).sort(
      (a, b) => countReady(b) - countReady(a),
    );
    const { pid } = cluster.requireAgent(victim);
    const arrivals = observer.waitForArrivals(countReady(victim));
    const startedAt = systemClock.now();
    process.kill(pid, 'SIGSTOP');
    try {
      samples.push(...(await arrivals).map((at) => at - startedAt));
    } finally {
      process.kill(pid, 'SIGCONT');
    }
    losses.set(victim, fewestLosses + 1);
    await waitForReturn(client, victim);
  }
  observer.close();
  return samples;
}

/** Waits until a lost node is READY and has stopped its replaced replicas. */
async function waitForReturn(client: CoordinatorClient, nodeId: string): Promise<void> {
  const watch = new AbortController();
  try {
    for await (const { node } of client.watchNodes({}, { signal: watch.signal })) {
      if (
        node?.id === nodeId &&
        node.status?.phase === Phase.READY &&
        node.status.replicaCount === 0
      )
        return;
    }
  } finally {
    watch.abort();
  }
  throw new Error(`the watch of nodes ended before ${nodeId} was back`);
}

/** Returns the number of NodeLost events. */
async function countLosses(client: CoordinatorClient): Promise<number> {
  const { events } = await client.listEvents({ newestFirst: true, pageSize: 1_000 });
  return events.filter(({ reason }) => reason === 'NodeLost').length;
}

const violations = new Violations();
const cluster = await RealCluster.start(AGENTS.map((_, index) => `zone-${index % 3}`));
try {
  const killed: number[] = [];
  for (let round = 1; round <= KILL_ROUNDS; round += 1)
    killed.push(...(await killEach(cluster, `round-${round}`)));
  violations.checkZero(
    await countLosses(cluster.client),
    'nodes lost while only processes were killed',
  );
  const silent = await silenceNodes(cluster, 'web');
  const losses = await countLosses(cluster.client);
  violations.check(
    losses === SILENT_ROUNDS,
    `${losses} losses of nodes were written down, ${SILENT_ROUNDS} nodes fell silent`,
  );
  printReport('recovery', {
    unit: 'ms from the failure until a client of WatchEndpoints sees the replica, or its replacement, ready; the median is P50',
    minReadyDuration: 0,
    agents: AGENTS.length,
    replicaKilled: {
      aim: 'P50 500, P95 2 000',
      replicasPerRound: REPLICAS_PER_KILL_ROUND,
      ...summarise(killed),
    },
    nodeSilent: { aim: 'P50 4 000, P95 6 000', rounds: SILENT_ROUNDS, ...summarise(silent) },
    violations: violations.texts,
  });
} finally {
  await cluster.stop();
}
process.exit(violations.exitCode());
