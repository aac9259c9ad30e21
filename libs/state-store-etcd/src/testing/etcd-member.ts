import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';

/** Settings of one {@link EtcdMember}. */
export interface EtcdMemberOptions {
  readonly name: string;
  /** Directory of the data; kept between starts. */
  readonly dataDir: string;
  readonly clientUrl: string;
  readonly peerUrl: string;
  /** Plaintext URL of /health and /metrics. */
  readonly metricsUrl: string;
  /** `name=peerUrl` of all members, separated by commas. */
  readonly initialCluster: string;
  /** Other flags of etcd. */
  readonly flags?: readonly string[];
  /** Command and arguments in front of `etcd`, such as `['nsenter', '--net=/run/netns/a', '--']`. */
  readonly commandPrefix?: readonly string[];
}

/** Interval at which {@link EtcdMember.waitUntilHealthy} asks. */
const POLL_MS = 20;
/** Time after which a member that is not healthy fails the test. */
const HEALTHY_WITHIN_MS = 30_000;
/** Lines of output that a member keeps. */
const MAX_OUTPUT_LINES = 50;

/** One process of etcd, which can be stopped and started again with its data. */
export class EtcdMember {
  private child: ChildProcess | undefined;
  private ended: Promise<unknown> = Promise.resolve();
  private lines: string[] = [];

  constructor(private readonly options: EtcdMemberOptions) {}

  get name(): string {
    return this.options.name;
  }

  get clientUrl(): string {
    return this.options.clientUrl;
  }

  get peerUrl(): string {
    return this.options.peerUrl;
  }

  get dataDir(): string {
    return this.options.dataDir;
  }

  get metricsUrl(): string {
    return this.options.metricsUrl;
  }

  /** Process id; undefined while the process does not run. */
  get pid(): number | undefined {
    return this.child?.pid;
  }

  /** The last lines of output. */
  get output(): string {
    return this.lines.join('\n');
  }

  /** Starts the process. Does nothing while the process runs. Does not wait for its health. */
  start(): void {
    if (this.child !== undefined) return;
    const { name, dataDir, clientUrl, peerUrl, metricsUrl, initialCluster } = this.options;
    const [command = 'etcd', ...args] = [
      ...(this.options.commandPrefix ?? []),
      'etcd',
      ...['--name', name, '--data-dir', dataDir],
      ...['--listen-client-urls', clientUrl, '--advertise-client-urls', clientUrl],
      ...['--listen-peer-urls', peerUrl, '--initial-advertise-peer-urls', peerUrl],
      ...['--listen-metrics-urls', metricsUrl],
      ...['--initial-cluster', initialCluster, '--initial-cluster-state', 'new'],
      ...['--logger', 'zap', '--log-level', 'error'],
      ...(this.options.flags ?? []),
    ];
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8');
      stream.on('data', (text: string) => {
        this.lines = [...this.lines, ...text.trimEnd().split('\n')].slice(-MAX_OUTPUT_LINES);
      });
    }
    this.child = child;
    this.ended = once(child, 'exit').then(
      () => (this.child = undefined),
      (reason: unknown) => {
        this.lines.push(String(reason));
        this.child = undefined;
      },
    );
  }

  /** Resolves when the member is part of a cluster with a leader. */
  async waitUntilHealthy(): Promise<void> {
    const deadline = Date.now() + HEALTHY_WITHIN_MS;
    while (!(await this.isHealthy())) {
      if (this.child === undefined || Date.now() > deadline)
        throw new Error(`etcd member ${this.name} is not healthy:\n${this.output}`);
      await sleep(POLL_MS);
    }
  }

  async isHealthy(): Promise<boolean> {
    try {
      const response = await fetch(`${this.metricsUrl}/health`);
      return response.ok && (await response.text()).includes('true');
    } catch {
      return false;
    }
  }

  /** True while this member leads the cluster. */
  async isLeader(): Promise<boolean> {
    try {
      const response = await fetch(`${this.metricsUrl}/metrics`);
      return (await response.text()).includes('\netcd_server_is_leader 1');
    } catch {
      return false;
    }
  }

  /**
   * Sends a signal. Resolves when the process has ended, except after SIGSTOP and SIGCONT, for which
   * it resolves at once.
   */
  async kill(signal: NodeJS.Signals): Promise<void> {
    this.child?.kill(signal);
    if (signal !== 'SIGSTOP' && signal !== 'SIGCONT') await this.ended;
  }
}
