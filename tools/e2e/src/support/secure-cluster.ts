import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ReplicaStatus_Phase, type Workload } from '@cloudless/api';
import { chooseWorkloadPorts } from './cluster.js';
import {
  RunningProgram,
  findBundle,
  killAll,
  listProcessesMentioning,
  runToEnd,
  type FinishedProgram,
} from './processes.js';
import { listProcessTree, type SecretScan } from './secret-scan.js';
import { openTokenClients, type SecureClients } from './secure-client.js';

export interface SecureClusterOptions {
  /** Names of the agents. */
  readonly agents: readonly string[];
  /** Additional flags of the coordinator. */
  readonly coordinatorFlags?: readonly string[];
  /** Socket of a container runtime. Default: agents run only processes. */
  readonly criSocket?: string;
  /** Additional flags of the agents. */
  readonly agentFlags?: readonly string[];
}

/** Host ports of each agent. */
const PORTS_PER_AGENT = 200;

/** A coordinator with TLS, and agents that have joined with a token, as real processes. */
export class SecureCluster {
  readonly directory = mkdtempSync(join(tmpdir(), 'cloudless-secure-'));
  readonly agents = new Map<string, RunningProgram>();
  private coordinatorProgram: RunningProgram | undefined;
  private adminClients: SecureClients | undefined;
  private currentUrl = '';
  /** Base URL of the ops port of the coordinator. */
  opsUrl = '';
  /** Text of the join token of the agents. Secret. */
  joinToken = '';

  private constructor(private readonly options: SecureClusterOptions) {}

  /** Starts the coordinator and the agents. The caller must stop the cluster. */
  static async start(options: SecureClusterOptions): Promise<SecureCluster> {
    const cluster = new SecureCluster(options);
    try {
      await cluster.startCoordinator();
      cluster.adminClients = await openTokenClients(cluster.url, cluster.adminToken);
      const { text } = await cluster.admin.identities.createJoinToken({
        maxUses: options.agents.length + 10,
      });
      cluster.joinToken = text;
      writeFileSync(cluster.joinTokenFile, `${text}\n`, { mode: 0o600 });
      for (const name of options.agents) await cluster.startAgent(name);
    } catch (reason) {
      await cluster.stop();
      throw reason;
    }
    return cluster;
  }

  get url(): string {
    return this.currentUrl;
  }

  get identityDir(): string {
    return join(this.directory, 'coordinator', 'identity');
  }

  get joinTokenFile(): string {
    return join(this.directory, 'join-token');
  }

  /** Token of the first administrator. Secret. */
  get adminToken(): string {
    return readFileSync(join(this.identityDir, 'admin.credential'), 'utf8').trim();
  }

  /** Clients that call as the first administrator, with the token. */
  get admin(): SecureClients {
    if (this.adminClients === undefined) throw new Error('no coordinator runs');
    return this.adminClients;
  }

  get coordinator(): RunningProgram {
    if (this.coordinatorProgram === undefined) throw new Error('no coordinator runs');
    return this.coordinatorProgram;
  }

  requireAgent(name: string): RunningProgram {
    const agent = this.agents.get(name);
    if (agent === undefined) throw new Error(`there is no ${name}`);
    return agent;
  }

  /** Starts the coordinator, with the port of its earlier start. */
  async startCoordinator(): Promise<void> {
    const port = this.currentUrl === '' ? '0' : new URL(this.currentUrl).port;
    this.coordinatorProgram = RunningProgram.start(process.execPath, [
      ...['--enable-source-maps', findBundle('coordinator'), '--tls', 'on'],
      ...['--port', port, '--ops-port', '0', '--data-dir', join(this.directory, 'coordinator')],
      ...(this.options.coordinatorFlags ?? []),
    ]);
    const ready = await this.coordinatorProgram.waitForLog('coordinator ready');
    this.currentUrl = String(ready['url']);
    this.opsUrl = String(ready['opsUrl']);
  }

  /** Starts or restarts an agent and waits until its node is ready. */
  async startAgent(name: string, ...flags: readonly string[]): Promise<void> {
    await this.launchAgent(name, ...flags);
    for (;;) {
      const { nodes } = await this.admin.coordinator.listNodes({});
      if (nodes.some((node) => node.id === name && node.status?.phase === 1)) return;
    }
  }

  /** Same as {@link startAgent}, without waiting for the node. */
  async launchAgent(name: string, ...flags: readonly string[]): Promise<void> {
    const agent = this.spawnAgent(name, ['--join-token-file', this.joinTokenFile, ...flags]);
    await agent.waitForLog('agent started, connecting to coordinators');
  }

  /**
   * Starts the process of an agent.
   * @param flags - How the agent gets its join token.
   * @param env - Added to the environment of the test.
   */
  spawnAgent(name: string, flags: readonly string[], env: NodeJS.ProcessEnv = {}): RunningProgram {
    const { criSocket } = this.options;
    const first = chooseWorkloadPorts(PORTS_PER_AGENT);
    const args = [
      ...['--enable-source-maps', findBundle('agent'), 'run', '--name', name],
      ...['--coordinator', this.url, ...flags, ...(this.options.agentFlags ?? [])],
      ...['--data-dir', join(this.directory, name)],
      ...['--port-range', `${first}-${first + PORTS_PER_AGENT - 1}`],
      ...(criSocket === undefined
        ? ['--runtime', 'process']
        : ['--runtime', 'cri', '--cri-socket', criSocket]),
      '--stop-workloads-on-exit',
    ];
    const agent = RunningProgram.start(process.execPath, args, env);
    this.agents.set(name, agent);
    return agent;
  }

  /** Searches from now on for every key and token that the programs of the cluster have now. */
  addSecretsTo(scan: SecretScan): void {
    scan.addSecretFiles(this.identityDir, /\.key$|^(token-secret|admin\.credential|join-command)$/);
    scan.addSecretFile(this.joinTokenFile);
    const secretsKey = join(this.identityDir, 'secrets-key');
    scan.addValue(secretsKey, Buffer.from(readFileSync(secretsKey, 'latin1').trim(), 'hex'));
    for (const name of this.agents.keys()) {
      const folder = join(this.directory, name, 'identity');
      if (existsSync(folder)) scan.addSecretFiles(folder, /^(node\.key|request\.json)$/);
    }
    const identities = join(this.directory, 'ctl', 'identities');
    if (existsSync(identities)) scan.addSecretFiles(identities, /^(identity|pending-key)\.json$/);
  }

  /**
   * Searches the data, logs and processes of all programs of the cluster.
   * @param options - `environmentsOf`: agents that got their token by their environment, which is
   *   left out for their own process, but not for the processes that they have started.
   */
  addOutputsTo(
    scan: SecretScan,
    { environmentsOf = [] }: { readonly environmentsOf?: readonly string[] } = {},
  ): void {
    scan.addDirectory(this.directory, (path) => this.isSecretPath(path));
    const programs = [['coordinator', this.coordinator] as const, ...this.agents];
    for (const [name, program] of programs) {
      scan.addText(`log of ${name}`, program.lines.join('\n'));
      const isAllowed = (pid: number): boolean =>
        pid === program.pid && environmentsOf.includes(name);
      scan.addProcesses(listProcessTree(program.pid), isAllowed);
    }
  }

  /** Returns the base URL of the ops port of an agent that was started with `--ops-listen`. */
  async waitForOpsUrl(name: string): Promise<string> {
    const line = await this.requireAgent(name).waitForLine((text) => text.includes('"opsUrl":'));
    return /"opsUrl":"([^"]+)"/.exec(line)?.[1] ?? '';
  }

  /** Returns the directories in which agents write the secrets of replicas. */
  get replicaFilesDirs(): readonly string[] {
    return [...this.agents.keys()].map((name) => join(this.directory, name, 'replica-files'));
  }

  /** Returns true for the files where keys, tokens and secrets of replicas belong. */
  private isSecretPath(path: string): boolean {
    const folders = [
      this.identityDir,
      join(this.directory, 'ctl', 'identities'),
      ...this.replicaFilesDirs,
      ...[...this.agents.keys()].flatMap((name) =>
        ['identity', 'workload-identities'].map((folder) => join(this.directory, name, folder)),
      ),
    ];
    return path === this.joinTokenFile || folders.some((folder) => path.startsWith(`${folder}/`));
  }

  /** Environment in which cloudlessctl uses this cluster after {@link login}. */
  get ctlEnv(): NodeJS.ProcessEnv {
    return { CLOUDLESS_CONFIG: join(this.directory, 'ctl', 'config.yaml'), NO_COLOR: '1' };
  }

  /** Logs in with cloudlessctl as the first administrator. */
  login(): Promise<FinishedProgram> {
    const tokenFile = join(this.identityDir, 'admin.credential');
    return this.runCtl('login', this.url, '--token-file', tokenFile, '--name', 'test');
  }

  /** Runs cloudlessctl until it exits. */
  runCtl(...args: readonly string[]): Promise<FinishedProgram> {
    return this.runCtlWithInput('', ...args);
  }

  /** Runs cloudlessctl with text on standard input. */
  runCtlWithInput(input: string, ...args: readonly string[]): Promise<FinishedProgram> {
    const command = [findBundle('cloudlessctl'), ...args];
    return runToEnd(process.execPath, command, { env: this.ctlEnv, input });
  }

  /** Runs cloudlessctl without a configuration file until it exits. */
  runCtlWith(env: NodeJS.ProcessEnv, ...args: readonly string[]): Promise<FinishedProgram> {
    const config = join(this.directory, 'none', 'config.yaml');
    return runToEnd(process.execPath, [findBundle('cloudlessctl'), ...args], {
      env: { CLOUDLESS_CONFIG: config, NO_COLOR: '1', ...env },
    });
  }

  /** Starts a long-running cloudlessctl. */
  startCtl(...args: readonly string[]): RunningProgram {
    const command = [findBundle('cloudlessctl'), ...args];
    return RunningProgram.start(process.execPath, command, this.ctlEnv);
  }

  /** Waits until a workload satisfies a condition, without a time limit. */
  async waitForWorkload(name: string, fits: (workload: Workload) => boolean): Promise<Workload> {
    const watch = new AbortController();
    const { signal } = watch;
    try {
      for await (const { workload } of this.admin.coordinator.watchWorkloads({ name }, { signal }))
        if (workload?.status !== undefined && fits(workload)) return workload;
    } finally {
      watch.abort();
    }
    throw new Error(`the watch of ${name} ended`);
  }

  /** Waits until all replicas are ready, of the newest version, and none is leaving. */
  waitUntilSettled(name: string): Promise<Workload> {
    return this.waitForWorkload(name, ({ generation, status }) => {
      if (status === undefined) return false;
      const { desiredReplicas, readyReplicas, updatedReplicas, totalReplicas } = status;
      const counts = [readyReplicas, updatedReplicas, totalReplicas];
      const isLeaving = status.replicas.some(
        ({ phase }) =>
          phase === ReplicaStatus_Phase.STOPPING || phase === ReplicaStatus_Phase.STOPPED,
      );
      return (
        counts.every((count) => count === desiredReplicas) &&
        !isLeaving &&
        status.observedGeneration === generation
      );
    });
  }

  /** Ends all processes and removes the directory. */
  async stop(): Promise<void> {
    this.adminClients?.close();
    await Promise.all([...this.agents.values()].map((agent) => agent.kill('SIGTERM')));
    await this.coordinatorProgram?.kill('SIGTERM');
    const left = listProcessesMentioning(this.directory);
    killAll(left);
    rmSync(this.directory, { recursive: true, force: true });
    if (left.length > 0) throw new Error(`left behind:\n${left.join('\n')}`);
  }
}
