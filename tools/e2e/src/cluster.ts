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

/** A server for tests: answers its replica's id, ends gently. */
export const SERVER_COMMAND = [
  'node',
  '-e',
  `const server = require('node:http').createServer((request, response) => response.end(process.env.CLOUDLESS_REPLICA_ID ?? ''));
   server.listen(process.env.PORT, '127.0.0.1');
   process.on('SIGTERM', () => server.close(() => process.exit(0)));`,
];

/**
 * Says `up` on each stream, then the path of each request: on stderr when it begins with `/error`,
 * else on stdout.
 */
export const TALKER_COMMAND = [
  'node',
  '-e',
  `const server = require('node:http').createServer(({ url }, response) =>
     (url.startsWith('/error') ? process.stderr : process.stdout).write(url + '\\n', () => response.end()));
   server.listen(process.env.PORT, '127.0.0.1', () => { console.log('up'); console.error('up'); });
   process.on('SIGTERM', () => process.exit(0));`,
];

/** What makes a test's workload quick: it counts as ready at once, and stops at once. */
export const QUICK = {
  preStopDelay: { seconds: 0n },
  rollout: { minReadyDuration: { seconds: 0n } },
};

/** Ports that tests hand to workloads: below the range of ports the system picks itself. */
const WORKLOAD_PORTS = { from: 12_000, to: 32_000 };
const PORTS_PER_AGENT = 400;
const MAX_AGENTS = 8;

/**
 * The first of `count` ports for workloads. Runs at the same time seldom get the same ones, and
 * agents skip a port in use.
 */
export function workloadPorts(count: number): number {
  return (
    WORKLOAD_PORTS.from +
    Math.floor(Math.random() * (WORKLOAD_PORTS.to - WORKLOAD_PORTS.from - count))
  );
}

/**
 * A coordinator and agents as real processes, on ports chosen at run time, in a temporary
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
    /** More flags of the coordinator, from its next start on. */
    public coordinatorFlags: readonly string[] = [],
  ) {}

  /**
   * Starts a coordinator and `zones.length` agents, one in each zone.
   * @param prepare - Called before anything is started, with the directory; the coordinator's data
   *   is `coordinator` in it.
   * @param criSocket - The agents run containers too, by the container runtime there; without it,
   *   whatever the machine has, they run processes only.
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

  /** Base address of the API. */
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

  /** Starts the coordinator; the second time on the port it had. */
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
   * Starts an agent, or the same one again; its node is ready then. @returns the address of its own
   * service.
   */
  async startAgent(name: string, zone: string, more: readonly string[] = []): Promise<string> {
    const address = await this.launchAgent(name, zone, more);
    await this.nodeReady(name);
    return address;
  }

  /** As {@link startAgent}, and needs no coordinator. */
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

  /** Runs cloudlessctl against this cluster. */
  ctl(...args: readonly string[]): Promise<Finished> {
    return this.ctlWithInput('', ...args);
  }

  /** Runs cloudlessctl with something on its standard input. */
  ctlWithInput(input: string, ...args: readonly string[]): Promise<Finished> {
    return runToEnd(process.execPath, [bundleOf('cloudlessctl'), ...args], {
      env: this.ctlEnv,
      input,
    });
  }

  /** Starts a cloudlessctl that goes on. */
  startCtl(...args: readonly string[]): Running {
    return Running.start(process.execPath, [bundleOf('cloudlessctl'), ...args], this.ctlEnv);
  }

  /** Makes cloudlessctl talk to this cluster, whatever the configuration of who runs the test. */
  get ctlEnv(): NodeJS.ProcessEnv {
    return {
      CLOUDLESS_SERVER: this.url,
      CLOUDLESS_CONFIG: join(this.directory, 'no-config.yaml'),
      NO_COLOR: '1',
    };
  }

  /**
   * Follows a workload until it is as `fits` says; waits on what the cluster tells, not on time.
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

  /** Waits until there is no such workload any more. */
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
   * Waits until as many replicas are ready as are wanted, all of the newest version and none
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
      // One that has just stopped is shown until its record goes.
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

  /** Ends everything and removes the directory. @throws when a process is left behind. */
  async stop(): Promise<void> {
    await Promise.all([...this.agents.values()].map((agent) => agent.kill('SIGTERM')));
    await this.coordinator?.kill('SIGTERM');
    const left = processesMentioning(this.directory);
    killAll(left);
    await rm(this.directory, { recursive: true, force: true });
    if (left.length > 0) throw new Error(`left behind:\n${left.join('\n')}`);
  }
}
