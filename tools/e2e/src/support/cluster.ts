import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createGrpcTransport } from '@connectrpc/connect-node';
import {
  PolicyRule_Type,
  PolicySpec_Action,
  ReplicaStatus_Phase,
  WatchWorkloadsResponse_Kind,
  createAgentClient,
  createCoordinatorClient,
  createPolicyClient,
  type AgentClient,
  type CoordinatorClient,
  type Workload,
} from '@cloudless/api';
import {
  RunningProgram,
  findBundle,
  killAll,
  listProcessesMentioning,
  repository,
  runToEnd,
  type FinishedProgram,
} from './processes.js';

/** Command of an HTTP server that answers with its replica id and exits on SIGTERM. */
export const SERVER_COMMAND = [
  'node',
  '-e',
  `const server = require('node:http').createServer((request, response) => response.end(process.env.CLOUDLESS_REPLICA_ID ?? ''));
   server.listen(process.env.PORT, '127.0.0.1');
   process.on('SIGTERM', () => server.close(() => process.exit(0)));`,
];

/**
 * Command of an HTTP server that writes `up` to both output streams, then the path of each request:
 * to stderr for paths that begin with `/error`, else to stdout.
 */
export const TALKER_COMMAND = [
  'node',
  '-e',
  `const server = require('node:http').createServer(({ url }, response) =>
     (url.startsWith('/error') ? process.stderr : process.stdout).write(url + '\\n', () => response.end()));
   server.listen(process.env.PORT, '127.0.0.1', () => { console.log('up'); console.error('up'); });
   process.on('SIGTERM', () => process.exit(0));`,
];

/** Spec fields of a fast test workload: ready replicas are available at once and stop at once. */
export const QUICK = {
  preStopDelay: { seconds: 0n },
  rollout: { minReadyDuration: { seconds: 0n } },
};

/**
 * Writes examples/hello.yaml with a shorter min_ready_duration (default 2 s) and without the
 * pre-stop delay (default 1 s) to a file, for tests with many rollouts of the example.
 */
export async function writeFastExample(file: string): Promise<void> {
  const manifest = await readFile(join(repository, 'examples/hello.yaml'), 'utf8');
  const settings = '  preStopDelay: 0s\n  rollout: { minReadyDuration: 1s }\n';
  await writeFile(file, `${manifest.trimEnd()}\n${settings}`);
}

/** Host ports for test workloads, below the range from which Linux chooses ports. */
const WORKLOAD_PORTS = { from: 12_000, to: 32_000 };
/** Most Jest workers; each worker has its own part of the ports. */
const MAX_WORKERS = 2;
/** Host ports of each agent, more than the replicas of any test. */
const PORTS_PER_AGENT = 400;
/** Most agents of a cluster, restarts included. */
const MAX_AGENTS = 8;

/**
 * Returns the first of `count` consecutive ports for workloads. Clusters of different Jest workers
 * never share ports: agents skip a port in use, but two agents may choose the same free port at the
 * same time.
 */
export function chooseWorkloadPorts(count: number): number {
  const worker = (Number(process.env['JEST_WORKER_ID'] ?? 1) - 1) % MAX_WORKERS;
  const share = (WORKLOAD_PORTS.to - WORKLOAD_PORTS.from) / MAX_WORKERS;
  return WORKLOAD_PORTS.from + worker * share + Math.floor(Math.random() * (share - count));
}

/**
 * A coordinator and agents as real processes, on ports chosen by the system, in a temporary
 * directory.
 */
export class RealCluster {
  /** The newest process of each agent, by name. */
  readonly agents = new Map<string, RunningProgram>();
  private coordinator: RunningProgram | undefined;
  private currentUrl = '';
  private currentOpsUrl = '';
  private agentCount = 0;
  private readonly firstPort = chooseWorkloadPorts(PORTS_PER_AGENT * MAX_AGENTS);

  private constructor(
    readonly directory: string,
    private readonly criSocket: string | undefined,
    /** Additional flags of the coordinator from its next start on. */
    public coordinatorFlags: readonly string[] = [],
  ) {}

  /**
   * Starts a coordinator and one agent for each element of `zones`, named `agent-1`, `agent-2` and
   * so on. The caller must stop the cluster.
   * @param prepare - Called with the directory before anything is started; the coordinator uses its
   *   subdirectory `coordinator`.
   * @param criSocket - Socket of a container runtime for the agents. Default: agents run processes
   *   only.
   * @param coordinatorFlags - Additional flags of the coordinator.
   */
  static async start(
    zones: readonly string[] = ['zone-a', 'zone-b', 'zone-c'],
    prepare: (directory: string) => Promise<void> = async () => undefined,
    {
      criSocket,
      coordinatorFlags,
    }: { readonly criSocket?: string; readonly coordinatorFlags?: readonly string[] } = {},
  ): Promise<RealCluster> {
    const directory = await mkdtemp(join(tmpdir(), 'cloudless-e2e-'));
    const cluster = new RealCluster(directory, criSocket, coordinatorFlags);
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
    return this.currentUrl;
  }

  /** Base URL of the ops port of the coordinator; changes at each start. */
  get opsUrl(): string {
    return this.currentOpsUrl;
  }

  /** A new client of the coordinator, with its own connection. */
  get client(): CoordinatorClient {
    return createCoordinatorClient(createGrpcTransport({ baseUrl: this.url }));
  }

  /** A new client of the agent service on the port of the coordinator. */
  get agentClient(): AgentClient {
    return createAgentClient(createGrpcTransport({ baseUrl: this.url }));
  }

  /** Adds a policy that exempts the workload `default/<name>` from the default policies. */
  async exemptFromPolicies(name: string): Promise<void> {
    const policies = createPolicyClient(createGrpcTransport({ baseUrl: this.url }));
    const expression = `workload_name == "${name}"`;
    await policies.createPolicy({
      name: `exempt-${name}`,
      spec: {
        namespace: 'default',
        action: PolicySpec_Action.ALLOW,
        priority: 1,
        rules: [
          {
            name: 'this-workload',
            type: PolicyRule_Type.EXPRESSION,
            config: { case: 'expression', value: { expression } },
            conditions: [{ field: 'name', value: { kind: { case: 'stringValue', value: name } } }],
          },
        ],
      },
    });
  }

  /** The newest process of the coordinator, also after its end. */
  get coordinatorProcess(): RunningProgram {
    if (this.coordinator === undefined) throw new Error('no coordinator runs');
    return this.coordinator;
  }

  /** Starts the coordinator and waits until it is ready. Later starts use the first port again. */
  async startCoordinator(): Promise<void> {
    const port = this.currentUrl === '' ? '0' : new URL(this.currentUrl).port;
    const args = [
      '--tls',
      'off',
      '--port',
      port,
      '--ops-port',
      '0',
      '--data-dir',
      join(this.directory, 'coordinator'),
      ...this.coordinatorFlags,
    ];
    this.coordinator = RunningProgram.start(process.execPath, [
      '--enable-source-maps',
      findBundle('coordinator'),
      ...args,
    ]);
    const ready = await this.coordinator.waitForLog('coordinator ready');
    this.currentUrl = String(ready['url']);
    this.currentOpsUrl = String(ready['opsUrl']);
  }

  /**
   * Starts or restarts an agent and waits until its node is ready.
   * @param more - Additional flags of the agent.
   * @returns The address of the service of the agent, as `host:port`.
   */
  async startAgent(name: string, zone: string, more: readonly string[] = []): Promise<string> {
    const address = await this.launchAgent(name, zone, more);
    await this.waitUntilNodeReady(name);
    return address;
  }

  /** Same as {@link startAgent}, without waiting for the node, so that no coordinator must run. */
  async launchAgent(name: string, zone: string, more: readonly string[] = []): Promise<string> {
    const first = this.firstPort + this.agentCount++ * PORTS_PER_AGENT;
    const agent = RunningProgram.start(process.execPath, [
      ...['--enable-source-maps', findBundle('agent'), 'run'],
      ...['--name', name, '--coordinator', this.url],
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
    const ready = await agent.waitForLog('agent started, connecting to coordinators');
    return String(ready['address']);
  }

  /** Returns the newest process of an agent. */
  requireAgent(name: string): RunningProgram {
    const agent = this.agents.get(name);
    if (agent === undefined) throw new Error(`there is no ${name}`);
    return agent;
  }

  /** Runs cloudlessctl against this cluster until it exits. */
  runCtl(...args: readonly string[]): Promise<FinishedProgram> {
    return this.runCtlWithInput('', ...args);
  }

  /** Runs cloudlessctl with text on standard input. */
  runCtlWithInput(input: string, ...args: readonly string[]): Promise<FinishedProgram> {
    return runToEnd(process.execPath, [findBundle('cloudlessctl'), ...args], {
      env: this.ctlEnv,
      input,
    });
  }

  /** Starts a long-running cloudlessctl. */
  startCtl(...args: readonly string[]): RunningProgram {
    return RunningProgram.start(
      process.execPath,
      [findBundle('cloudlessctl'), ...args],
      this.ctlEnv,
    );
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
   * Watches a workload until a condition holds, without a time limit.
   * @param target - `[namespace/]name`.
   * @param fits - The condition; called only with workloads that have a status.
   */
  async waitForWorkload(target: string, fits: (workload: Workload) => boolean): Promise<Workload> {
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

  /**
   * Waits until a workload does not exist.
   * @param target - `[namespace/]name`.
   */
  async waitUntilDeleted(target: string): Promise<void> {
    const watch = new AbortController();
    const [name = '', namespace = 'default'] = target.split('/').reverse();
    let exists = false;
    try {
      for await (const { kind } of this.client.watchWorkloads(
        { namespace, name },
        { signal: watch.signal },
      )) {
        if (kind === WatchWorkloadsResponse_Kind.PUT) exists = true;
        else if (kind === WatchWorkloadsResponse_Kind.DELETED) return;
        else if (kind === WatchWorkloadsResponse_Kind.SYNCED && !exists) return;
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
  waitUntilSettled(name: string): Promise<Workload> {
    return this.waitForWorkload(name, ({ generation, status }) => {
      if (status === undefined) return false;
      const { desiredReplicas, readyReplicas, updatedReplicas, totalReplicas, observedGeneration } =
        status;
      const isComplete = [readyReplicas, updatedReplicas, totalReplicas].every(
        (count) => count === desiredReplicas,
      );
      // a stopped replica is listed until its record is removed
      const leaving = status.replicas.filter(
        ({ phase }) =>
          phase === ReplicaStatus_Phase.STOPPING || phase === ReplicaStatus_Phase.STOPPED,
      );
      return isComplete && leaving.length === 0 && observedGeneration === generation;
    });
  }

  /** Waits until the coordinator reports the node as ready. */
  async waitUntilNodeReady(nodeId: string): Promise<void> {
    for (;;) {
      const { nodes } = await this.client.listNodes({});
      if (nodes.some((node) => node.id === nodeId && node.status?.phase === 1)) return;
    }
  }

  /**
   * Ends all processes and removes the directory.
   * @throws Error when a process outlives the cluster; that process is killed.
   */
  async stop(): Promise<void> {
    await Promise.all([...this.agents.values()].map((agent) => agent.kill('SIGTERM')));
    await this.coordinator?.kill('SIGTERM');
    const left = listProcessesMentioning(this.directory);
    killAll(left);
    await rm(this.directory, { recursive: true, force: true });
    if (left.length > 0) throw new Error(`left behind:\n${left.join('\n')}`);
  }
}
