import {
  definedFields,
  createSeededRandom,
  noMeter,
  silentLog,
  type Log,
  type Meter,
} from '@cloudless/base';
import { ManualClock, settle } from '@cloudless/base/testing';
import { ReplicaStatus_Phase, type ReplicaReport } from '@cloudless/api';
import { createFakeRuntime, type FakeRuntime } from '@cloudless/runtime/testing';
import type { NodeDescription } from '../node/node-description.js';
import type { LeaseKeeper } from '../session/lease-keeper.js';
import { Agent } from '../agent.js';
import type { AgentOptions } from '../agent-options.js';
import type { NodeIdentityOptions } from '../identity/certificate-client.js';
import type { NodeReading } from '../node/node-monitor.js';
import type { StatsReader } from '../stats/stats-reader.js';
import { FakeCoordinator } from './fake-coordinator.js';
import { MemoryAgentStore } from './memory-agent-store.js';

/**
 * One machine with an agent, a fake coordinator and virtual time. Machine and store survive
 * restarts of the agent.
 */
export class AgentTestBed {
  readonly clock = new ManualClock();
  readonly coordinator = new FakeCoordinator();
  readonly store = new MemoryAgentStore();
  readonly random = createSeededRandom(1);
  runtime: FakeRuntime = createFakeRuntime({ clock: this.clock });
  bootId = 'boot-1';
  startConcurrency: number | undefined;
  onClusterKnown: ((clusterId: string) => Promise<void>) | undefined;
  coordinators: readonly string[] = ['http://a'];
  log: Log = silentLog;
  meter: Meter = noMeter;
  stats: StatsReader | undefined;
  leaseKeeper: LeaseKeeper | undefined;
  nodeIdentity: NodeIdentityOptions | undefined;
  workloadIdentity: AgentOptions['workloadIdentity'];
  deniesProcesses = false;
  replicaFiles: AgentOptions['replicaFiles'];
  network: AgentOptions['network'];
  /** Address and host id of the network proxy in each Hello. */
  proxyAddress: NodeDescription['network'];
  /** Addresses `ip:port` that accept no connection; `*` for all. */
  readonly closedPorts = new Set<string>();
  /** Returns the status of HTTP checks by path, or throws the failure. */
  http: (path: string) => number = () => 200;
  /** Returns the status name of gRPC health checks by service, or throws the failure. */
  grpc: (service: string) => string = () => 'SERVING';
  /** Probe requests in order, with their time. */
  readonly probeRequests: { readonly atMs: number; readonly text: string }[] = [];
  /** Usage and conditions that the agent reads of its machine. */
  reading: NodeReading = {
    cpuMillis: 10,
    memoryBytes: 1_000,
    storageBytes: 2_000,
    memoryPressure: { status: false, reason: '' },
    diskPressure: { status: false, reason: '' },
  };
  private current: Agent | undefined;

  get agent(): Agent {
    if (this.current === undefined) throw new Error('no agent runs');
    return this.current;
  }

  get machine(): FakeRuntime['machine'] {
    return this.runtime.machine;
  }

  /** Starts an agent and lets it do everything that needs no time to pass. */
  async start(): Promise<Agent> {
    this.current = await Agent.start({
      nodeId: 'node-1',
      bootId: this.bootId,
      coordinators: this.coordinators,
      transport: this.coordinator,
      runtime: this.runtime,
      store: this.store,
      nodeReader: { read: async () => this.reading },
      node: () => ({
        ...definedFields({ network: this.proxyAddress }),
        region: 'r1',
        zone: 'z1',
        labels: { disk: 'ssd' },
        taints: [],
        capacity: { cpuMillis: 4_000, memoryBytes: 8e9, storageBytes: 1e11 },
        reserved: { cpuMillis: 100, memoryBytes: 1e8 },
        maxReplicas: 110,
        agentVersion: '0.1.0',
        architecture: 'x64',
        operatingSystem: 'linux',
        agentAddress: '',
      }),
      connect: async (ip, port) =>
        !this.closedPorts.has(`${ip}:${port}`) && !this.closedPorts.has('*'),
      probeClients: {
        http: async ({ ip, port, path, headers }) => {
          const sentHeaders = Object.entries(headers).map(([name, value]) => ` ${name}: ${value}`);
          this.probeRequests.push({
            atMs: this.clock.now(),
            text: `GET ${ip}:${port}${path}${sentHeaders.join('')}`,
          });
          return this.http(path);
        },
        grpc: async ({ ip, port, service }) => {
          this.probeRequests.push({
            atMs: this.clock.now(),
            text: `Check ${ip}:${port} ${service}`,
          });
          return this.grpc(service);
        },
      },
      ...definedFields({
        stats: this.stats,
        leaseKeeper: this.leaseKeeper,
        nodeIdentity: this.nodeIdentity,
        workloadIdentity: this.workloadIdentity,
        replicaFiles: this.replicaFiles,
        network: this.network,
      }),
      deniesProcesses: this.deniesProcesses,
      clock: this.clock,
      random: this.random,
      log: this.log,
      meter: this.meter,
      ...definedFields({
        startConcurrency: this.startConcurrency,
        onClusterKnown: this.onClusterKnown,
      }),
      resetCommand: 'cloudless-agent reset',
    });
    await settle();
    return this.current;
  }

  /** Ends the agent without Goodbye, as `kill -9` does. The containers keep running. */
  async kill(): Promise<void> {
    const agent = this.current;
    this.current = undefined;
    this.coordinator.dropConnections();
    this.runtime = await this.runtime.reopen();
    const stopped = agent?.stop();
    await this.clock.advance(0);
    await stopped;
  }

  /** Stops the agent gracefully. */
  async stop(
    options: { readonly stopWorkloads?: boolean; readonly machineStops?: boolean } = {},
  ): Promise<void> {
    const stopped = this.agent.stop(options);
    this.current = undefined;
    await this.clock.advance(60_000);
    await stopped;
  }

  /** Kills the agent and starts the next agent. */
  async restart(): Promise<Agent> {
    await this.kill();
    return this.start();
  }

  /** Returns the newest report of a replica in short form; undefined without a report. */
  summarizeReport(
    replicaId = 'web-1',
  ): { phase: string; ready: boolean; restarts: number; reason: string } | undefined {
    const report = this.coordinator.reports.get(replicaId);
    return report === undefined
      ? undefined
      : {
          phase: toPhaseName(report),
          ready: report.ready,
          restarts: report.restarts,
          reason: report.reason,
        };
  }

  /** @throws when the coordinator has received no report of the replica. */
  requireReport(replicaId = 'web-1'): ReplicaReport {
    const report = this.coordinator.reports.get(replicaId);
    if (report === undefined) throw new Error(`nothing was reported of ${replicaId}`);
    return report;
  }
}

/** Returns the name of the phase in a report, such as `RUNNING`. */
export function toPhaseName(report: ReplicaReport): string {
  return ReplicaStatus_Phase[report.phase];
}
