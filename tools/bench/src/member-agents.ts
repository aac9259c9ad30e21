// Some of the agents, each over its own connection. The benchmark starts several such processes and
// controls them by messages.
import {
  Agent,
  NodeIdentityKeeper,
  NodeIdentityStore,
  type NodeIdentity,
  type AgentOptions,
  type CoordinatorConnection,
  type CoordinatorTransport,
} from '@cloudless/agent-core';
import { MemoryAgentStore, MemoryIdentityFiles } from '@cloudless/agent-core/testing';
import { silentLog, sleep } from '@cloudless/base';
import { createFakeRuntime } from '@cloudless/runtime/testing';
import { systemClock, systemRandom } from '@cloudless/app-kit';
import { createKeyAndCsr } from '@cloudless/identity/x509';
import { createCoordinatorTransport, type ClientTls } from '@cloudless/rpc-node/client';
import { connectWithToken } from './token-access.js';
import type { AgentsCommand, AgentsReport, StartCommand } from './member-protocol.js';

/** A simulated machine with an agent. */
class SimulatedAgent {
  /** `dead`: has no connection. `muted`: the connections are open, but nothing is sent. */
  state: 'healthy' | 'dead' | 'muted' = 'healthy';
  private connection: CoordinatorConnection | undefined;
  private agent: Agent | undefined;
  private keeper: NodeIdentityKeeper | undefined;

  constructor(private readonly nodeId: string) {}

  get isConnected(): boolean {
    return this.agent?.connected === true;
  }

  async start(coordinator: string, joinToken: string | undefined): Promise<void> {
    this.agent = await Agent.start({
      ...(joinToken === undefined ? {} : { nodeIdentity: this.createIdentity(joinToken) }),
      nodeId: this.nodeId,
      bootId: 'boot',
      coordinators: coordinator.split(','),
      transport: this.transport,
      runtime: createFakeRuntime({ clock: systemClock }),
      store: new MemoryAgentStore(),
      nodeReader: { read: async () => READING },
      node: () => NODE,
      connect: async () => true,
      probeClients: { http: async () => 200, grpc: async () => 'SERVING' },
      clock: systemClock,
      random: systemRandom,
      log: silentLog,
      resetCommand: '',
    });
  }

  /** Simulates a dead machine: connections are reset. */
  simulateDeath(): void {
    this.state = 'dead';
    this.connection?.close();
  }

  /** Simulates a network failure: all data is dropped. */
  simulateSilence(): void {
    this.state = 'muted';
  }

  private createIdentity(joinToken: string): NonNullable<AgentOptions['nodeIdentity']> {
    const store = new NodeIdentityStore(new MemoryIdentityFiles(), '');
    this.keeper = new NodeIdentityKeeper(store, {}, createKeyAndCsr);
    return {
      keeper: this.keeper,
      readJoinToken: async () => joinToken,
      connectToJoin: connectWithToken,
    };
  }

  private readonly coordinatorTransport = createCoordinatorTransport({
    tls: () => {
      const identity = this.keeper?.current;
      if (identity === undefined) throw new Error(`${this.nodeId} has not joined`);
      return this.toClientTls(identity);
    },
  });

  /** Returns the same object for the same identity, so that its keys are parsed once. */
  private toClientTls(identity: NodeIdentity): ClientTls {
    if (this.clientTls?.of !== identity) {
      const { keyPem, chainPem, trustBundle, coordinatorIds, trustDomain } = identity;
      const serverIds = coordinatorIds;
      const tls = { keyPem, chainPem, bundlePem: trustBundle.pem, serverIds, trustDomain };
      this.clientTls = { of: identity, tls };
    }
    return this.clientTls.tls;
  }

  private clientTls: { readonly of: NodeIdentity; readonly tls: ClientTls } | undefined;

  private get transport(): CoordinatorTransport {
    return {
      connect: async (address, signal, onReached) => {
        if (this.state !== 'healthy') return new Promise(() => undefined);
        const connection = await this.coordinatorTransport.connect(address, signal, onReached);
        this.connection = connection;
        return {
          enroll: (request) => connection.enroll(request),
          renewNodeCertificate: (request) => connection.renewNodeCertificate(request),
          issueWorkloadCertificate: (request) => connection.issueWorkloadCertificate(request),
          authorizeAgentCall: (request) => connection.authorizeAgentCall(request),
          getReplicaFiles: (request, callSignal) => connection.getReplicaFiles(request, callSignal),
          openSession: (outgoing) => connection.openSession(this.dropWhenMuted(outgoing)),
          openTunnel: (outgoing) => connection.openTunnel(outgoing),
          ping: () => (this.state === 'muted' ? Promise.resolve() : connection.ping()),
          close: () => connection.close(),
        };
      },
    };
  }

  private async *dropWhenMuted<Message>(messages: AsyncIterable<Message>): AsyncGenerator<Message> {
    for await (const message of messages) {
      if (this.state === 'muted') await new Promise(() => undefined);
      yield message;
    }
  }
}

const NO_PRESSURE = { status: false, reason: '' };
const READING = {
  cpuMillis: 100,
  memoryBytes: 1e9,
  storageBytes: 1e10,
  memoryPressure: NO_PRESSURE,
  diskPressure: NO_PRESSURE,
};
const NODE = {
  region: 'local',
  zone: 'zone-a',
  labels: {},
  taints: [],
  capacity: { cpuMillis: 4_000, memoryBytes: 8e9, storageBytes: 1e11 },
  reserved: { cpuMillis: 0, memoryBytes: 0 },
  maxReplicas: 110,
  agentVersion: 'simulated',
  architecture: 'x64',
  operatingSystem: 'linux',
  agentAddress: '',
};

/** Agents of this process by index. */
const agents = new Map<number, SimulatedAgent>();

/**
 * Number of agents that start in parallel. The agents share an event loop, so more starts at once
 * would delay the pings of running agents, unlike on real machines.
 */
const BATCH = 25;

async function startAll({ coordinator, joinToken, paced }: StartCommand): Promise<void> {
  const all = [...agents.values()];
  for (let first = 0; first < all.length; first += BATCH) {
    const batch = all.slice(first, first + BATCH);
    await Promise.all(batch.map((agent) => agent.start(coordinator, joinToken)));
    // A join with its keys and handshakes takes 20 ms of the event loop.
    while ((paced || joinToken !== undefined) && batch.some((agent) => !agent.isConnected))
      await sleep(systemClock, 20);
    await new Promise((resolve) => setImmediate(resolve));
  }
}

const sendReport = (report: AgentsReport): void => void process.send?.(report);

process.on('message', (command: AgentsCommand) => {
  switch (command.kind) {
    case 'start':
      for (let index = command.first; index < command.first + command.count; index += 1)
        agents.set(index, new SimulatedAgent(`node-${index + 1}`));
      void startAll(command).then(() => sendReport({ kind: 'started' }));
      return;
    case 'fail':
      for (const index of command.agents) {
        if (command.failure === 'reset') agents.get(index)?.simulateDeath();
        else agents.get(index)?.simulateSilence();
      }
      return sendReport({ kind: 'failed', atMs: Date.now() });
    case 'count':
      return sendReport({
        kind: 'counted',
        connected: [...agents.values()].filter(
          ({ isConnected, state }) => isConnected && state === 'healthy',
        ).length,
        memoryBytes: process.memoryUsage().rss,
      });
  }
});
