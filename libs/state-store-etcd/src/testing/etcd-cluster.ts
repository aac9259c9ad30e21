import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { EtcdMember } from './etcd-member.js';

/** Settings of {@link EtcdCluster.start}. */
export interface EtcdClusterOptions {
  /** Number of members. Default 3. */
  readonly members?: number;
  /** Directory below which the data directories are created. Default: that of temporary files. */
  readonly directory?: string;
  /** Other flags of each member. */
  readonly flags?: readonly string[];
  /** Scheme of the URLs of clients. With `https`, `flags` must name the certificates. */
  readonly clientScheme?: 'http' | 'https';
}

/** Members of etcd on free loopback ports, with their own data directories. */
export class EtcdCluster {
  private constructor(
    readonly members: readonly EtcdMember[],
    private readonly directory: string,
  ) {}

  /** Starts a new cluster, and resolves when all its members are healthy. */
  static async start(options: EtcdClusterOptions = {}): Promise<EtcdCluster> {
    const { members: count = 3, clientScheme = 'http', flags = [] } = options;
    const directory = await mkdtemp(join(options.directory ?? tmpdir(), 'cloudless-etcd-'));
    const ports = await findFreePorts(3 * count);
    const urls = ports.map((port) => `http://127.0.0.1:${port}`);
    const names = Array.from({ length: count }, (_, index) => `etcd-${index + 1}`);
    const peerUrl = (index: number): string => urls[count + index] ?? '';
    const initialCluster = names.map((name, index) => `${name}=${peerUrl(index)}`).join(',');
    const members = names.map(
      (name, index) =>
        new EtcdMember({
          name,
          dataDir: join(directory, name),
          clientUrl: (urls[index] ?? '').replace('http', clientScheme),
          peerUrl: peerUrl(index),
          metricsUrl: urls[2 * count + index] ?? '',
          initialCluster,
          flags,
        }),
    );
    const cluster = new EtcdCluster(members, directory);
    try {
      for (const member of members) member.start();
      await cluster.waitUntilHealthy();
    } catch (reason) {
      await cluster.stop();
      throw reason;
    }
    return cluster;
  }

  /** URLs of all members for clients. */
  get endpoints(): readonly string[] {
    return this.members.map(({ clientUrl }) => clientUrl);
  }

  /**
   * Runs etcdctl against all members.
   * @returns The standard output.
   */
  async etcdctl(...args: string[]): Promise<string> {
    const { stdout } = await promisify(execFile)(
      'etcdctl',
      ['--endpoints', this.endpoints.join(','), ...args],
      { env: { ...process.env, ETCDCTL_API: '3' } },
    );
    return stdout;
  }

  /** The member that leads; undefined while there is none. */
  async findLeader(): Promise<EtcdMember | undefined> {
    const isLeader = await Promise.all(this.members.map((member) => member.isLeader()));
    return this.members.find((_, index) => isLeader[index]);
  }

  /** Moves the leadership to another member. */
  async moveLeader(): Promise<void> {
    const ids = await this.etcdctl('member', 'list');
    const leader = await this.findLeader();
    const follower = ids.split('\n').find((line) => !line.includes(`${leader?.name},`));
    if (leader === undefined || follower === undefined) throw new Error('etcd has no leader');
    const [id = ''] = follower.split(',');
    await promisify(execFile)('etcdctl', ['--endpoints', leader.clientUrl, 'move-leader', id], {
      env: { ...process.env, ETCDCTL_API: '3' },
    });
  }

  /** Resolves when all members are healthy. */
  async waitUntilHealthy(): Promise<void> {
    await Promise.all(this.members.map((member) => member.waitUntilHealthy()));
  }

  /** Kills all members and removes their data. */
  async stop(): Promise<void> {
    await Promise.all(this.members.map((member) => member.kill('SIGKILL')));
    await rm(this.directory, { recursive: true, force: true });
  }
}

/** Returns ports on which nothing listens. All are held until the last one is found. */
async function findFreePorts(count: number): Promise<readonly number[]> {
  const servers = await Promise.all(
    Array.from({ length: count }, async () => {
      const server = createServer();
      await new Promise<void>((resolve, reject) => {
        server.once('error', reject);
        server.listen(0, '127.0.0.1', resolve);
      });
      return server;
    }),
  );
  const ports = servers.map((server) => (server.address() as AddressInfo).port);
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
  return ports;
}
