import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  ReplicaStatus_Phase,
  WatchWorkloadsResponse_Kind,
  createAgentClient,
  createCoordinatorClient,
  type AgentClient,
  type CoordinatorClient,
  type Workload,
} from '@cloudless/api';
import { createGrpcTransport } from '@connectrpc/connect-node';
import {
  Running,
  bundleOf,
  killAll,
  processesMentioning,
  runToEnd,
  type Finished,
} from './processes.js';

/** A test server that answers with its replica id and handles SIGTERM. */
export const SERVER_COMMAND = [
  'node',
  '-e',
  `const server = require('node:http').createServer((request, response) => response.end(process.env.CLOUDLESS_REPLICA_ID ?? ''));
   server.listen(process.env.PORT, '127.0.0.1');
   process.on('SIGTERM', () => server.close(() => process.exit(0)));`,
];

/**
 * A test server that writes `up` to both output streams, then the path of each request: to stderr
 * for paths that begin with `/error`, else to stdout.
 */
export const TALKER_COMMAND = [
  'node',
  '-e',
  `const server = require('node:http').createServer(({ url }, response) =>
     (url.startsWith('/error') ? process.stderr : process.stdout).write(url + '\\n', () => response.end()));
   server.listen(process.env.PORT, '127.0.0.1', () => { console.log('up'); console.error('up'); });
   process.on('SIGTERM', () => process.exit(0));`,
];

/** Settings of a fast test workload: ready replicas are available at once and stop at once. */
export const QUICK = {
  preStopDelay: { seconds: 0n },
  rollout: { minReadyDuration: { seconds: 0n } },
};

/** Host ports for test workloads, below the range that the system assigns. */
const WORKLOAD_PORTS = { from: 12_000, to: 32_000 };
const PORTS_PER_AGENT = 400;
const MAX_AGENTS = 8;

/**
 * Returns the first of `count` consecutive ports for workloads. Parallel runs rarely get the same
 * ports, and agents skip a port in use.
 */
export function workloadPorts(count: number): number {
  return (
    WORKLOAD_PORTS.from +
    Math.floor(Math.random() * (WORKLOAD_PORTS.to - WORKLOAD_PORTS.from - count))
  );
}

/**
 * A coordinator and agents as real processes, on ports chosen by the system, in a temporary
 * directory.
 */
export class RealCluster {
  readonly agents = new Map<string, Running>();
  private coordinator: Running | undefined;
  private urlNow = '';
  private opsUrlNow = '';
  private agentCount = 0;
  private readonly firstPort = workloadPorts(PORTS_PER_AGENT * MAX_AGENTS);

  private constructor(
    readonly directory: string,
    private readonly criSocket: string | undefined,
    /** Additional flags of the coordinator from its next start on. */
    public coordinatorFlags: readonly string[] = [],
  ) {}

  /**
   * Starts a coordinator and `zones.length` agents, one in each zone.
   * @param prepare - Called with the directory before anything is started; the coordinator uses its
   *   subdirectory `coordinator`.
   * @param criSocket - Socket of a container runtime for the agents. Without it the agents run
   *   processes only.
   */
  static async start(
    zones: readonly string[] = ['zone-a', 'zone-b', 'zone-c'],
    prepare: (directory: string) => Promise<void> = async () => undefined,
    { criSocket }: { readonly criSocket?: string } = {},
  ): Promise<RealCluster> {
    const cluster = new RealCluster(await mkdtemp(join(tmpdir(), 'cloudless-e2e-')), criSocket);
    try {
      await prepare(cluster.directory);
      await cluster.startCoordinator();
      for (const [index, zone] of zones.entries())
        await cluster.startAgent(`agent-${index + 1}`, zone);
    } catch (reason) {
      await cluster.stop();
      throw reason;
    }
    return cluster;
  }

  /** Base URL of the API. */
  get url(): string {
    return this.urlNow;
  }

  get opsUrl(): string {
    return this.opsUrlNow;
  }

  get client(): CoordinatorClient {
    return createCoordinatorClient(createGrpcTransport({ baseUrl: this.url }));
  }

  get agentClient(): AgentClient {
    return createAgentClient(createGrpcTransport({ baseUrl: this.url }));
  }

  get coordinatorProcess(): Running {
    if (this.coordinator === undefined) throw new Error('no coordinator runs');
    return this.coordinator;
  }

  /** Starts the coordinator. Later starts use the port of the first start. */
  async startCoordinator(): Promise<void> {
    const port = this.urlNow === '' ? '0' : new URL(this.urlNow).port;
    const args = [
      '--port',
      port,
      '--ops-port',
      '0',
      '--data-dir',
      join(this.directory, 'coordinator'),
      ...this.coordinatorFlags,
    ];
    this.coordinator = Running.start(process.execPath, [
      '--enable-source-maps',
      bundleOf('coordinator'),
      ...args,
    ]);
    const ready = await this.coordinator.logged('coordinator ready');
    this.urlNow = String(ready['url']);
    this.opsUrlNow = String(ready['opsUrl']);
  }

  /**
   * Starts or restarts an agent and waits until its node is ready. @returns The address of the
   * service of the agent.
   */
  async startAgent(name: string, zone: string, more: readonly string[] = []): Promise<string> {
    const address = await this.launchAgent(name, zone, more);
    await this.nodeReady(name);
    return address;
  }

  /** Like {@link startAgent}, but does not need a coordinator. */
  async launchAgent(name: string, zone: string, more: readonly string[] = []): Promise<string> {
    const first = this.firstPort + this.agentCount++ * PORTS_PER_AGENT;
    const agent = Running.start(process.execPath, [
      ...['--enable-source-maps', bundleOf('agent'), '--name', name, '--coordinator', this.url],
      ...[
        '--zone',
        zone,
        '--region',
        'local',
        '--listen',
        '127.0.0.1:0',
        '--data-dir',
        join(this.directory, name),
      ],
      ...['--port-range', `${first}-${first + PORTS_PER_AGENT - 1}`, '--stop-workloads-on-exit'],
      ...(this.criSocket === undefined
        ? ['--runtime', 'process']
        : ['--runtime', 'cri', '--cri-socket', this.criSocket]),
      ...more,
    ]);
    this.agents.set(name, agent);
    const ready = await agent.logged('agent ready');
    return String(ready['address']);
  }

  agent(name: string): Running {
    const agent = this.agents.get(name);
    if (agent === undefined) throw new Error(`there is no ${name}`);
    return agent;
  }

  /** Runs cloudlessctl against this cluster until it exits. */
  ctl(...args: readonly string[]): Promise<Finished> {
    return this.ctlWithInput('', ...args);
  }

  /** Runs cloudlessctl with text on standard input. */
  ctlWithInput(input: string, ...args: readonly string[]): Promise<Finished> {
    return runToEnd(process.execPath, [bundleOf('cloudlessctl'), ...args], {
      env: this.ctlEnv,
      input,
    });
  }

  /** Starts a long-running cloudlessctl. */
  startCtl(...args: readonly string[]): Running {
    return Running.start(process.execPath, [bundleOf('cloudlessctl'), ...args], this.ctlEnv);
  }

  /** Environment that makes cloudlessctl use this cluster and no configuration file of the user. */
  get ctlEnv(): NodeJS.ProcessEnv {
    return {
      CLOUDLESS_SERVER: this.url,
      CLOUDLESS_CONFIG: join(this.directory, 'no-config.yaml'),
      NO_COLOR: '1',
    };
  }

  /**
   * Watches a workload until a condition holds.
   * @param target - `[namespace/]name`.
   */
  async until(target: string, fits: (workload: Workload) => boolean): Promise<Workload> {
    const watch = new AbortController();
    const [name = '', namespace = 'default'] = target.split('/').reverse();
    try {
      for await (const { workload } of this.client.watchWorkloads(
        { namespace, name },
        { signal: watch.signal },
      )) {
        if (workload?.status !== undefined && fits(workload)) return workload;
      }
    } finally {
      watch.abort();
    }
    throw new Error(`the watch of ${target} ended`);
  }

  /** Waits until a workload does not exist. */
  async gone(target: string): Promise<void> {
    const watch = new AbortController();
    const [name = '', namespace = 'default'] = target.split('/').reverse();
    let present = false;
    try {
      for await (const { kind } of this.client.watchWorkloads(
        { namespace, name },
        { signal: watch.signal },
      )) {
        if (kind === WatchWorkloadsResponse_Kind.PUT) present = true;
        else if (kind === WatchWorkloadsResponse_Kind.DELETED) return;
        else if (kind === WatchWorkloadsResponse_Kind.SYNCED && !present) return;
      }
    } finally {
      watch.abort();
    }
    throw new Error(`the watch of ${target} ended`);
  }

  /**
   * Waits until the desired number of replicas is ready, all of the newest version and none
   * leaving.
   */
  settled(name: string): Promise<Workload> {
    return this.until(name, ({ generation, status }) => {
      if (status === undefined) return false;
      const { desiredReplicas, readyReplicas, updatedReplicas, totalReplicas, observedGeneration } =
        status;
      const exact = [readyReplicas, updatedReplicas, totalReplicas].every(
        (count) => count === desiredReplicas,
      );
      // A stopped replica is listed until its record is removed.
      const gone = status.replicas.filter(
        ({ phase }) =>
          phase === ReplicaStatus_Phase.STOPPING || phase === ReplicaStatus_Phase.STOPPED,
      );
      return exact && gone.length === 0 && observedGeneration === generation;
    });
  }

  async nodeReady(nodeId: string): Promise<void> {
    for (;;) {
      const { nodes } = await this.client.listNodes({});
      if (nodes.some((node) => node.id === nodeId && node.status?.phase === 1)) return;
    }
  }

  /** Ends all processes and removes the directory. @throws when a process is left behind. */
  async stop(): Promise<void> {
    await Promise.all([...this.agents.values()].map((agent) => agent.kill('SIGTERM')));
    await this.coordinator?.kill('SIGTERM');
    const left = processesMentioning(this.directory);
    killAll(left);
    await rm(this.directory, { recursive: true, force: true });
    if (left.length > 0) throw new Error(`left behind:\n${left.join('\n')}`);
  }
}
