import { setTimeout as pause } from 'node:timers/promises';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { Rollout_Promotion, Rollout_Strategy } from '@cloudless/api';
import { REQUEST_APP } from '@cloudless/e2e';
import { requireItem } from '../require-item.js';
import type { AgentMachine } from '../world/agent-machine.js';
import { killProcesses, listProcesses, type ServiceCluster, type Spec } from './service-cluster.js';
import type { EventName } from './options.js';
import type { Traffic } from './traffic.js';
import { measurePercent, type Allowance } from './verdict.js';

/** Workload and service that the client uses. */
export const WEB = 'web';
const REPLICAS = 6;
/** Requests in which the share of a canary is measured. */
const SAMPLE = 1_000;
/** Largest difference between the share of a canary and its weight, percentage points. */
const SHARE_TOLERANCE = 5;
/** Time in which new weights reach the proxies, and in which a killed proxy is back, milliseconds. */
const PAUSE_MS = 2_000;
/** Time for a change, with its repetitions, milliseconds. */
const CALL_WITHIN_MS = 2_000;
/** Time for the return of a node, milliseconds. */
const READY_WITHIN_MS = 60_000;
/** Command lines of the network proxies contain this text. */
const PROXY = 'network-proxy';

/** Cluster and load that an event may use. */
export interface EventContext {
  readonly cluster: ServiceCluster;
  readonly traffic: Traffic;
  /** Time for which there is no coordinator, milliseconds. */
  readonly outageMs: number;
}

/** Actions of an event, and the failures of clients that it allows. */
export interface EventResult extends Allowance {
  readonly notes?: readonly string[];
  readonly problems?: readonly string[];
}

/** Lets a rollout go on half a second after a replica is ready. */
const QUICK_ROLLOUT = { minReadyDuration: durationFromMs(500) };

/** Spec of the workload that the client uses. */
export const WEB_SPEC: Spec = {
  command: REQUEST_APP,
  env: { VERSION: '1' },
  ports: [{ name: 'http', containerPort: 80 }],
  expose: [{ name: 'http', port: 80 }],
  replicas: REPLICAS,
  rollout: QUICK_ROLLOUT,
};

/** Workload on the node of the client. */
export const NEIGHBOUR_SPEC: Spec = {
  command: ['sleep', '1000000'],
  placement: { nodeSelector: { role: 'client' } },
};

/** Version in the answers of the newest replicas. */
let version = 1;

/** Begins the next version, and returns its environment. */
function beginNextVersion(): { readonly VERSION: string } {
  version += 1;
  return { VERSION: String(version) };
}

/** Measures which part of the new connections the newest version answers, in percent. */
async function measureShare(traffic: Traffic): Promise<number> {
  const fromMs = Date.now();
  await traffic.waitForRequests(SAMPLE);
  return measurePercent(traffic.read(), String(version), fromMs, Date.now());
}

async function updateRolling({ cluster }: EventContext): Promise<EventResult> {
  await cluster.update(WEB, { rollout: QUICK_ROLLOUT, env: beginNextVersion() });
  await cluster.waitUntilSettled(WEB);
  return {};
}

/** Brings the new version to 10 %, 50 % and 100 % of the new connections. */
async function updateByWeight({ cluster, traffic }: EventContext): Promise<EventResult> {
  const promotion = Rollout_Promotion.MANUAL;
  const steps = [
    { replicas: 1, weightPercent: 10, promotion },
    { replicas: 2, weightPercent: 50, promotion },
  ];
  await cluster.update(WEB, {
    rollout: { ...QUICK_ROLLOUT, steps },
    env: beginNextVersion(),
  });
  const notes: string[] = [];
  const problems: string[] = [];
  for (const [index, { weightPercent }] of steps.entries()) {
    const { status } = await cluster.waitForWorkload(WEB, ({ status }) => {
      const rollout = status?.rollout;
      return rollout?.waitsForPromotion === true && rollout.step === index + 1;
    });
    await pause(PAUSE_MS); // the weights have reached the proxies
    const share = await measureShare(traffic);
    notes.push(`weight ${weightPercent}: ${share.toFixed(1)} % of new connections`);
    if (Math.abs(share - weightPercent) > SHARE_TOLERANCE)
      problems.push(`weight ${weightPercent}: ${share.toFixed(1)} % of new connections`);
    const rolledOut = requireItem(status?.rollout).version;
    await cluster.world.call(
      (client, options) => client.promoteRollout({ name: WEB, version: rolledOut }, options),
      CALL_WITHIN_MS,
    );
  }
  await cluster.waitUntilSettled(WEB);
  const share = await measureShare(traffic);
  notes.push(`after the rollout: ${share.toFixed(1)} %`);
  if (share !== 100) problems.push(`after the rollout: ${share.toFixed(1)} %`);
  return { notes, problems };
}

async function switchBlueGreen({ cluster }: EventContext): Promise<EventResult> {
  const rollout = { ...QUICK_ROLLOUT, strategy: Rollout_Strategy.BLUE_GREEN };
  await cluster.update(WEB, { rollout, env: beginNextVersion() });
  await cluster.waitUntilSettled(WEB);
  return {};
}

async function drainNode({ cluster }: EventContext): Promise<EventResult> {
  const { name } = requireItem(cluster.servers[0]);
  await cluster.ctl('node', 'drain', name, '--wait', '--accept-warnings');
  await cluster.waitUntilSettled(WEB);
  await cluster.ctl('node', 'uncordon', name);
  return { notes: [`drained ${name}`] };
}

/** Kills agent, supervisor, proxy and replicas of a node at once, and later starts the agent. */
async function killNode({ cluster }: EventContext): Promise<EventResult> {
  const agent = requireItem(cluster.servers[1]);
  const endsReplica = await findReplicasOf(cluster, agent);
  const brokenAtMs = killProcesses(listProcesses(agent.machine));
  const { replicas } = requireItem((await cluster.waitUntilReplaced(WEB, agent.name)).status);
  const tookMs = Date.now() - brokenAtMs;
  agent.start();
  await cluster.world.waitUntilNodesReady(READY_WITHIN_MS);
  const notes = [`${replicas.length} replicas elsewhere after ${(tookMs / 1_000).toFixed(1)} s`];
  return { brokenAtMs, endsReplica, notes };
}

/** Pulls the network cable of a node: no connection is reset, packets disappear. */
async function unplugNode({ cluster }: EventContext): Promise<EventResult> {
  const agent = requireItem(cluster.servers[2]);
  const endsReplica = await findReplicasOf(cluster, agent);
  const brokenAtMs = Date.now();
  cluster.world.machines.setConnected(agent.machine, false);
  await cluster.waitUntilReplaced(WEB, agent.name);
  cluster.world.machines.setConnected(agent.machine, true);
  await cluster.world.waitUntilNodesReady(READY_WITHIN_MS);
  await cluster.waitUntilSettled(WEB);
  return { brokenAtMs, endsReplica };
}

/** Kills the agents of a server and of the client's node, one after the other. */
async function killAgents({ cluster }: EventContext): Promise<EventResult> {
  for (const agent of [requireItem(cluster.servers[0]), cluster.client]) {
    await agent.kill('SIGKILL');
    await pause(PAUSE_MS);
    agent.start();
    await agent.program.waitForLog('session established');
  }
  await cluster.waitUntilSettled(WEB);
  return {};
}

/**
 * Kills the proxy of a node; its agent starts another.
 * @param isAgentKilled - True: kills the agent as well, and starts it again.
 */
const killProxy =
  (choose: (cluster: ServiceCluster) => AgentMachine, isAgentKilled: boolean) =>
  async ({ cluster }: EventContext): Promise<EventResult> => {
    const agent = choose(cluster);
    const isClient = agent === cluster.client;
    const endsReplica = isClient ? () => true : await findReplicasOf(cluster, agent);
    const proxies = listProcesses(agent.machine, PROXY);
    const agents = isAgentKilled ? [{ pid: agent.program.pid, command: '' }] : [];
    const brokenAtMs = killProcesses([...agents, ...proxies]);
    if (isAgentKilled) {
      await agent.program.exited;
      agent.start();
    }
    await pause(PAUSE_MS);
    await cluster.waitUntilSettled(WEB);
    return { brokenAtMs, endsReplica, notes: [`killed ${proxies.length} proxies`] };
  };

async function stopCoordinators({ cluster, outageMs }: EventContext): Promise<EventResult> {
  for (const coordinator of cluster.world.coordinators) await coordinator.kill('SIGKILL');
  await pause(outageMs);
  await cluster.world.heal();
  await cluster.world.waitUntilNodesReady(READY_WITHIN_MS);
  await cluster.waitUntilSettled(WEB);
  return {};
}

/** Starts each agent with another zone, so that it hands its proxy's sockets to a new process. */
async function upgradeProxies({ cluster }: EventContext): Promise<EventResult> {
  for (const agent of cluster.world.agents) {
    agent.zone = agent.zone === 'zone-a' ? 'zone-b' : 'zone-a';
    await agent.kill('SIGTERM');
    agent.start();
    await agent.program.waitForLog('network proxy replaced');
    await agent.program.waitForLog('session established');
  }
  await cluster.waitUntilSettled(WEB);
  return {};
}

/** Returns a function that tells whether a replica ran on a node now. */
async function findReplicasOf(
  cluster: ServiceCluster,
  { name }: AgentMachine,
): Promise<(replicaId: string) => boolean> {
  const { status } = await cluster.read(WEB);
  const own = (status?.replicas ?? []).filter(({ nodeId }) => nodeId === name);
  if (own.length === 0) throw new Error(`no replica runs on ${name}`);
  const ids = new Set(own.map(({ id }) => id));
  return (replicaId) => ids.has(replicaId);
}

const firstServer = (cluster: ServiceCluster): AgentMachine => requireItem(cluster.servers[0]);
const clientNode = (cluster: ServiceCluster): AgentMachine => cluster.client;

/** Functions that carry the events out, by name. */
export const EVENTS: Readonly<Record<EventName, (context: EventContext) => Promise<EventResult>>> =
  {
    'rolling-update': updateRolling,
    'weighted-canary': updateByWeight,
    'blue-green': switchBlueGreen,
    'drain-node': drainNode,
    'kill-node': killNode,
    'unplug-node': unplugNode,
    'kill-agents': killAgents,
    'stop-coordinators': stopCoordinators,
    'upgrade-proxies': upgradeProxies,
    'kill-server-proxy': killProxy(firstServer, false),
    'kill-client-proxy': killProxy(clientNode, false),
    'kill-client-agent-and-proxy': killProxy(clientNode, true),
  };
