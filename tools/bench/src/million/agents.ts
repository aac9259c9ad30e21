// The light agents of the benchmark `million`, in one process. The benchmark starts the process and
// controls it by messages. Up to 40 agents share a connection, the limit of the coordinator for one
// client without identity.
import { once } from 'node:events';
import * as http2 from 'node:http2';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { durationMs } from '@bufbuild/protobuf/wkt';
import type { Welcome } from '@cloudless/api';
import { systemClock, systemRandom } from '@cloudless/app-kit';
import { sleep } from '@cloudless/base';
import {
  ZONES,
  type AgentCounts,
  type AgentsCommand,
  type AgentsReply,
} from './agents-protocol.js';
import { FrameConnection } from './frame-connection.js';
import { LightAgent, type SharedCounts } from './light-agent.js';

const AGENTS_PER_CONNECTION = 40;
/** Pause before a connection is tried again, milliseconds. */
const RETRY_MS = 100;

const shared: SharedCounts = {
  admitted: 0,
  startOrders: 0,
  stopOrders: 0,
  forgetOrders: 0,
  repeatedOrders: 0,
  reports: 0,
  bytesReceived: 0,
  bytesSent: 0,
};
/** From the newest Welcome. */
const times = { pingMs: 900, usageMs: 10_000, reconnectSpreadMs: 0 };

/** The newest turn of {@link takeTurn}. */
let newestTurn: Promise<void> = Promise.resolve();

/**
 * Resolves in an iteration of the event loop of its own. Agents on as many machines encode their
 * inventories without delaying each other's heartbeats; here, all agents share one main loop.
 */
function takeTurn(): Promise<void> {
  newestTurn = newestTurn.then(() => new Promise((resolve) => setImmediate(resolve)));
  return newestTurn;
}

/** One connection and its agents, which are all in the same zone. */
class AgentGroup {
  private connection: FrameConnection | undefined;
  isLost = false;

  constructor(
    readonly zone: number,
    readonly agents: readonly LightAgent[],
  ) {}

  get isOpen(): boolean {
    return this.connection !== undefined;
  }

  /** Keeps a connection open until the zone is lost. */
  async run(coordinator: string): Promise<void> {
    while (!this.isLost) {
      await this.runConnection(coordinator).catch(() => undefined);
      if (this.isLost) return;
      // As real agents: all dial again within the spread that the coordinator has announced.
      await sleep(systemClock, RETRY_MS + systemRandom.next() * times.reconnectSpreadMs);
    }
  }

  lose(): void {
    this.isLost = true;
    this.connection?.destroy();
  }

  private async runConnection(coordinator: string): Promise<void> {
    await this.enroll(coordinator);
    if (this.isLost) return;
    const connection = await FrameConnection.connect(coordinator);
    if (this.isLost) return connection.destroy();
    this.connection = connection;
    void this.keepLeases(connection);
    void this.sendUsage(connection);
    for (const agent of this.agents) void this.keepSession(agent, connection);
    await connection.whenClosed;
    this.connection = undefined;
  }

  /**
   * Enrolls the agents that have not enrolled, over `node:http2`: a {@link FrameConnection} makes
   * no unary calls.
   */
  private async enroll(coordinator: string): Promise<void> {
    const agents = this.agents.filter((agent) => !agent.isEnrolled);
    if (agents.length === 0) return;
    const session = http2.connect(coordinator);
    session.on('error', () => undefined);
    try {
      await once(session, 'connect');
      for (const agent of agents) if (!this.isLost) await agent.enroll(session);
    } finally {
      session.destroy();
    }
  }

  /** Opens the session of an agent, and again whenever it ends, as real agents do. */
  private async keepSession(agent: LightAgent, connection: FrameConnection): Promise<void> {
    while (!connection.closed) {
      await takeTurn();
      if (connection.closed) return;
      await agent.runSession(connection);
      await sleep(systemClock, RETRY_MS + systemRandom.next() * times.reconnectSpreadMs);
    }
  }

  private async keepLeases(connection: FrameConnection): Promise<void> {
    while (!connection.closed) {
      connection.ping();
      await sleep(systemClock, times.pingMs);
    }
  }

  private async sendUsage(connection: FrameConnection): Promise<void> {
    while (!connection.closed) {
      await sleep(systemClock, times.usageMs * (0.5 + systemRandom.next()));
      if (connection.closed) return;
      for (const agent of this.agents) agent.sendUsage();
    }
  }
}

const groups: AgentGroup[] = [];
const loopDelay = monitorEventLoopDelay();
loopDelay.enable();

async function start({
  coordinator,
  agents,
  maxReplicas,
}: Extract<AgentsCommand, { kind: 'start' }>): Promise<void> {
  for (let zone = 0; zone < ZONES; zone += 1) {
    const ofZone: LightAgent[] = [];
    for (let index = zone; index < agents; index += ZONES)
      ofZone.push(
        new LightAgent({
          nodeId: `node-${index + 1}`,
          zone: `zone-${zone}`,
          maxReplicas,
          counts: shared,
          onWelcome: applyWelcome,
        }),
      );
    for (let first = 0; first < ofZone.length; first += AGENTS_PER_CONNECTION)
      groups.push(new AgentGroup(zone, ofZone.slice(first, first + AGENTS_PER_CONNECTION)));
  }
  for (const group of groups) void group.run(coordinator);
  while (shared.admitted < agents) await sleep(systemClock, 50);
}

function applyWelcome({ pingInterval, usageInterval, reconnectSpread }: Welcome): void {
  if (pingInterval !== undefined) times.pingMs = durationMs(pingInterval);
  if (usageInterval !== undefined) times.usageMs = durationMs(usageInterval);
  if (reconnectSpread !== undefined) times.reconnectSpreadMs = durationMs(reconnectSpread);
}

function count(): AgentCounts {
  const byVersion = new Map<number, number>();
  let running = 0;
  let mostOnOneAgent = 0;
  for (const group of groups) {
    if (group.isLost) continue;
    for (const agent of group.agents) {
      running += agent.running;
      mostOnOneAgent = Math.max(mostOnOneAgent, agent.running);
      for (const [version, ofAgent] of agent.runningByVersion)
        byVersion.set(version, (byVersion.get(version) ?? 0) + ofAgent);
    }
  }
  const { user, system } = process.cpuUsage();
  const longestStallMs = Math.round(loopDelay.max / 1e6);
  loopDelay.reset();
  return {
    longestStallMs,
    ...shared,
    connections: groups.filter((group) => group.isOpen && !group.isLost).length,
    running,
    runningByVersion: Object.fromEntries(byVersion),
    mostOnOneAgent,
    cpuSeconds: (user + system) / 1e6,
    memoryBytes: process.memoryUsage.rss(),
  };
}

const reply = (message: AgentsReply): void => void process.send?.(message);

process.on('message', (command: AgentsCommand) => {
  switch (command.kind) {
    case 'start':
      return void start(command).then(() => reply({ kind: 'started' }));
    case 'loseZone':
      for (const group of groups) if (group.zone === command.zone) group.lose();
      return reply({ kind: 'zoneLost' });
    case 'count':
      return reply({ kind: 'counted', counts: count() });
  }
});
process.on('disconnect', () => process.exit(0));
