import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { spawnSync } from 'node:child_process';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { createGrpcTransport } from '@connectrpc/connect-node';
import { NodeStatus_Phase, createCoordinatorClient, type CoordinatorClient } from '@cloudless/api';
import { chooseWorkloadPorts } from './cluster.js';
import {
  RunningProgram,
  findBundle,
  killAll,
  listProcessesMentioning,
  runToEnd,
  type FinishedProgram,
} from './processes.js';
import { openTokenClients, type SecureClients } from './secure-client.js';

/** Host ports of each agent. */
const PORTS_PER_AGENT = 200;
/** Time between two looks at a file, milliseconds. */
const POLL_MS = 20;

/** Returns why no etcd can be started here; undefined when one can. */
export function findEtcdProblem(): string | undefined {
  const { error } = spawnSync('etcd', ['--version']);
  if (error === undefined) return undefined;
  return 'etcd is not installed: apt-get install etcd-server';
}

/**
 * Same as `describe`, for tests that need etcd. Where etcd is missing, the tests are skipped, and
 * the title has the reason; with `CLOUDLESS_ETCD=required` they run and fail.
 */
export function describeWithEtcd(name: string, tests: () => void): void {
  const reason = process.env['CLOUDLESS_ETCD'] === 'required' ? undefined : findEtcdProblem();
  if (reason === undefined) return describe(name, tests);
  process.stderr.write(`SKIPPED ${name}: ${reason}\n`);
  describe.skip(`${name} (skipped: ${reason})`, tests);
}

/** A coordinator of a {@link ReplicatedCluster}. */
export interface ReplicatedCoordinator {
  readonly name: string;
  /** Base URL of the API, the same after a restart. */
  readonly url: string;
  /** The newest process. */
  readonly program: RunningProgram;
}

/** Size and settings of a {@link ReplicatedCluster}. */
export interface ReplicatedClusterOptions {
  readonly coordinators: number;
  readonly agents: number;
  /** `on`: the coordinators share one certificate authority. Default `on`. */
  readonly tls?: 'on' | 'off';
}

/**
 * One etcd member, coordinators, and agents that know every coordinator, as real processes on
 * loopback addresses.
 */
export class ReplicatedCluster {
  readonly directory = mkdtempSync(join(tmpdir(), 'cloudless-replicated-'));
  readonly agents = new Map<string, RunningProgram>();
  private readonly started = new Map<string, ReplicatedCoordinator>();
  private readonly clients: SecureClients[] = [];
  private readonly commands: RunningProgram[] = [];
  private etcd: RunningProgram | undefined;
  private etcdUrl = '';

  private constructor(private readonly tls: 'on' | 'off') {}

  /** Starts everything, and waits until the nodes are ready. The caller must stop the cluster. */
  static async start(options: ReplicatedClusterOptions): Promise<ReplicatedCluster> {
    const cluster = new ReplicatedCluster(options.tls ?? 'on');
    try {
      await cluster.startEtcd();
      for (let index = 1; index <= options.coordinators; index += 1)
        await cluster.startCoordinator(`c${index}`);
      if (options.agents > 0) await cluster.startAgents(options.agents);
    } catch (reason) {
      await cluster.stop();
      throw reason;
    }
    return cluster;
  }

  /** The coordinators in the order of their first start. */
  get coordinators(): readonly ReplicatedCoordinator[] {
    return [...this.started.values()];
  }

  /** Text of the token of the first administrator. Secret. */
  get adminToken(): string {
    return readFileSync(this.adminTokenFile, 'utf8').trim();
  }

  private get adminTokenFile(): string {
    return join(this.toIdentityDir('c1'), 'admin.credential');
  }

  /** Opens a client of one coordinator, which calls as the first administrator. */
  async openClient(name: string): Promise<CoordinatorClient> {
    if (this.tls === 'on') return (await this.openClients(name)).coordinator;
    const { url } = this.requireCoordinator(name);
    return createCoordinatorClient(createGrpcTransport({ baseUrl: url }));
  }

  /** Same as {@link openClient}, for all services of a coordinator with TLS. */
  async openClients(name: string): Promise<SecureClients> {
    const clients = await openTokenClients(this.requireCoordinator(name).url, this.adminToken);
    this.clients.push(clients);
    return clients;
  }

  requireCoordinator(name: string): ReplicatedCoordinator {
    const coordinator = this.started.get(name);
    if (coordinator === undefined) throw new Error(`there is no ${name}`);
    return coordinator;
  }

  /** Starts a coordinator, or starts it again with its first port; waits until it serves. */
  async startCoordinator(name: string): Promise<void> {
    const earlier = this.started.get(name);
    const port = earlier === undefined ? '0' : new URL(earlier.url).port;
    if (this.tls === 'on' && earlier === undefined && name !== 'c1') {
      mkdirSync(join(this.directory, name), { mode: 0o700 });
      cpSync(this.toIdentityDir('c1'), this.toIdentityDir(name), { recursive: true });
    }
    const program = RunningProgram.start(process.execPath, [
      ...['--enable-source-maps', findBundle('coordinator'), '--name', name],
      ...[
        '--tls',
        this.tls,
        '--port',
        port,
        '--ops-port',
        '0',
        '--data-dir',
        join(this.directory, name),
      ],
      ...['--state', 'etcd', '--etcd-endpoints', this.etcdUrl],
    ]);
    const ready = await program.waitForLog('coordinator ready');
    this.started.set(name, { name, url: String(ready['url']), program });
    // the first coordinator writes the keys and the token once it leads
    while (this.tls === 'on' && !existsSync(this.adminTokenFile)) await pause(POLL_MS);
  }

  /** Runs cloudlessctl with the configuration of a user who logged in at one coordinator. */
  runCtl(...args: readonly string[]): Promise<FinishedProgram> {
    return runToEnd(process.execPath, [findBundle('cloudlessctl'), ...args], { env: this.ctlEnv });
  }

  /** Starts a long-running cloudlessctl, which {@link stop} ends. */
  startCtl(...args: readonly string[]): RunningProgram {
    const command = [findBundle('cloudlessctl'), ...args];
    const program = RunningProgram.start(process.execPath, command, this.ctlEnv);
    this.commands.push(program);
    return program;
  }

  /**
   * Logs in with cloudlessctl as the first administrator.
   * @param servers - Addresses of coordinators, separated by commas.
   */
  login(servers: string): Promise<FinishedProgram> {
    return this.runCtl('login', servers, '--token-file', this.adminTokenFile, '--name', 'test');
  }

  /** Ends all processes and removes the directory. */
  async stop(): Promise<void> {
    for (const clients of this.clients) clients.close();
    await Promise.all(this.commands.map((command) => command.kill('SIGKILL')));
    await Promise.all([...this.agents.values()].map((agent) => agent.kill('SIGTERM')));
    await Promise.all(this.coordinators.map(({ program }) => program.kill('SIGTERM')));
    await this.etcd?.kill('SIGKILL');
    const left = listProcessesMentioning(this.directory);
    killAll(left);
    rmSync(this.directory, { recursive: true, force: true });
    if (left.length > 0) throw new Error(`left behind:\n${left.join('\n')}`);
  }

  private get ctlEnv(): NodeJS.ProcessEnv {
    return { CLOUDLESS_CONFIG: join(this.directory, 'ctl', 'config.yaml'), NO_COLOR: '1' };
  }

  private toIdentityDir(name: string): string {
    return join(this.directory, name, 'identity');
  }

  private async startEtcd(): Promise<void> {
    const [client, peer] = [await findFreeUrl(), await findFreeUrl()];
    this.etcdUrl = client;
    this.etcd = RunningProgram.start('etcd', [
      ...['--name', 'e1', '--data-dir', join(this.directory, 'etcd'), '--logger', 'zap'],
      ...['--listen-client-urls', client, '--advertise-client-urls', client],
      ...['--listen-peer-urls', peer, '--initial-advertise-peer-urls', peer],
      ...['--initial-cluster', `e1=${peer}`],
    ]);
    await this.etcd.waitForLine((line) => line.includes('serving client traffic insecurely'));
  }

  private async startAgents(count: number): Promise<void> {
    const client = await this.openClient('c1');
    const joinTokenFile = join(this.directory, 'join-token');
    if (this.tls === 'on') {
      const { identities } = await this.openClients('c1');
      const { text } = await identities.createJoinToken({ maxUses: count });
      writeFileSync(joinTokenFile, `${text}\n`, { mode: 0o600 });
    }
    const urls = this.coordinators.map(({ url }) => url).join(',');
    for (let index = 1; index <= count; index += 1) {
      const first = chooseWorkloadPorts(PORTS_PER_AGENT);
      const name = `agent-${index}`;
      const agent = RunningProgram.start(process.execPath, [
        ...['--enable-source-maps', findBundle('agent'), 'run', '--name', name],
        ...['--coordinator', urls, '--runtime', 'process'],
        ...(this.tls === 'on' ? ['--join-token-file', joinTokenFile] : []),
        ...['--data-dir', join(this.directory, name), '--stop-workloads-on-exit'],
        ...['--port-range', `${first}-${first + PORTS_PER_AGENT - 1}`],
      ]);
      this.agents.set(name, agent);
    }
    for (;;) {
      const { nodes } = await client.listNodes({});
      if (nodes.filter(({ status }) => status?.phase === NodeStatus_Phase.READY).length === count)
        return;
    }
  }
}

/** Returns a URL with a port of 127.0.0.1 that is free now. */
async function findFreeUrl(): Promise<string> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return `http://127.0.0.1:${port}`;
}
