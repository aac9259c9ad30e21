import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import type { ReplicaStatus } from '@cloudless/api';
import { QUICK, type RealCluster } from './support/cluster.js';
import {
  describeContainers,
  fetchText,
  startContainerCluster,
  stopContainerCluster,
} from './support/containers.js';

const MIB = 1024 * 1024;
/** More replicas than an agent starts containers in parallel. */
const MANY_REPLICAS = 12;

describeContainers('an agent with containers', () => {
  let cluster: RealCluster;
  beforeAll(async () => {
    cluster = await startContainerCluster(['zone-a']);
  });
  afterAll(() => stopContainerCluster(cluster));

  const create = async (name: string, spec: object): Promise<void> => {
    // small requests, so that many replicas fit on a small machine
    const requests = { cpuMillis: 10 };
    await cluster.client.createWorkload({
      name,
      spec: { ...QUICK, resources: { requests }, ...spec },
    });
  };
  const remove = async (name: string): Promise<void> => {
    await cluster.client.deleteWorkload({ name });
    await cluster.waitUntilDeleted(name);
  };
  const waitForReplica = async (
    name: string,
    fits: (replica: ReplicaStatus) => boolean,
  ): Promise<ReplicaStatus> => {
    const { status } = await cluster.waitForWorkload(name, ({ status: current }) =>
      current!.replicas.some(fits),
    );
    return status!.replicas.find(fits)!;
  };
  const listMessages = async (workload: string, reason: string): Promise<readonly string[]> =>
    (await cluster.client.listEvents({ workload, pageSize: 1_000 })).events
      .filter((event) => event.reason === reason)
      .map(({ message }) => message);

  it('reports a container as out of memory when the kernel killed it at its memory limit', async () => {
    // tail keeps the last 200 MB of an endless input in memory
    const command = ['tail', '-c', '200000000', '/dev/zero'];
    const memory = { memoryBytes: BigInt(32 * MIB) };
    await create('greedy', {
      image: 'busybox:1',
      command,
      resources: { requests: memory, limits: memory },
    });
    const { id } = await waitForReplica(
      'greedy',
      ({ lastExitCode, lastEndReason }) =>
        lastExitCode === 137 && lastEndReason === 'out of memory',
    );
    await waitForReplica('greedy', ({ restarts }) => restarts >= 1);
    expect(await listMessages('greedy', 'ReplicaRestarted')).toContain(
      `replica ${id} ended (out of memory) and was restarted`,
    );
    expect((await cluster.runCtl('describe', 'greedy')).stdout).toContain('out of memory');
    await remove('greedy');
  });

  it('reports the registry error of a missing image, retries, and starts other containers meanwhile', async () => {
    await create('unknown', { image: 'no-such-image:7', replicas: MANY_REPLICAS });
    const pattern = /no-such-image:7.*not found/;
    // the status keeps the error of the previous attempt while the next attempt has no reason yet
    const replica = await waitForReplica('unknown', ({ imagePull }) =>
      pattern.test(imagePull?.reason ?? ''),
    );
    expect(replica).toMatchObject({ ready: false, imagePull: { image: 'no-such-image:7' } });
    await waitForReplica('unknown', ({ reason, lastEndReason }) =>
      pattern.test(`${reason} ${lastEndReason}`),
    );
    await waitForReplica('unknown', ({ reason }) => /restarting in/.test(reason));
    expect(
      (await listMessages('unknown', 'ImagePullFailed')).some((message) => pattern.test(message)),
    ).toBe(true);
    expect((await cluster.runCtl('describe', 'unknown')).stdout).toMatch(pattern);
    await create('other', { image: 'nginx:alpine' });
    await cluster.waitUntilSettled('other');
    await remove('unknown');
    await remove('other');
  });

  it('delays only replicas whose registry does not answer', async () => {
    const silent = await SilentRegistry.listen();
    try {
      await create('waiting', {
        image: `127.0.0.1:${silent.port}/slow:1`,
        replicas: MANY_REPLICAS,
      });
      await cluster.waitForWorkload('waiting', ({ status }) =>
        status!.replicas.every(({ reason }) => reason.startsWith('pulling ')),
      );
      await silent.waitForRequest();
      await create('other', { image: 'nginx:alpine', replicas: 2 });
      const { status } = await cluster.waitUntilSettled('other');
      expect(status!.readyReplicas).toBe(2);
      expect((await cluster.client.getWorkload({ name: 'waiting' })).status!.readyReplicas).toBe(0);
      await remove('other');
      await remove('waiting'); // also ends replicas that wait for their image
    } finally {
      await silent.close();
    }
  });

  describe('running probes', () => {
    const quick = { period: durationFromMs(200), timeout: durationFromMs(10_000) };
    const exec = (...command: readonly string[]) => ({
      check: { case: 'exec' as const, value: { command: [...command] } },
      ...quick,
    });
    const ports = [{ name: 'http', containerPort: 8080 }];
    const runInside = (name: string, script: string) =>
      cluster.agentClient
        .execCommand({ name, command: ['sh', '-c', script] })
        .then(({ exitCode }) => expect(exitCode).toBe(0));

    it('restarts a container in place when its liveness command fails', async () => {
      await create('live', {
        image: 'cloudless/test:1',
        livenessProbe: exec('test', '!', '-e', '/tmp/broken'),
      });
      const before = (await cluster.waitUntilSettled('live')).status!.replicas[0]!;
      await runInside('live', 'touch /tmp/broken');
      const after = await waitForReplica('live', ({ restarts, ready }) => restarts === 1 && ready);
      expect(after).toMatchObject({
        id: before.id,
        nodeId: before.nodeId,
        lastEndReason: expect.stringContaining('liveness probe: ') as string,
      });
      expect(after.containerId).not.toBe(before.containerId);
      await remove('live');
    });

    it.each([
      {
        kind: 'http',
        probe: {
          check: { case: 'http' as const, value: { port: 'http', path: '/version' } },
          ...quick,
        },
      },
      {
        kind: 'tcp',
        probe: { check: { case: 'tcp' as const, value: { port: '8080' } }, ...quick },
      },
      {
        kind: 'grpc',
        probe: { check: { case: 'grpc' as const, value: { port: '8080' } }, ...quick },
      },
      {
        kind: 'exec',
        probe: exec('wget', '-q', '-O', '/dev/null', 'http://127.0.0.1:8080/version'),
      },
    ])(
      'reports a container as ready by a $kind probe only when it listens on its address',
      async ({ kind, probe }) => {
        const name = `probed-${kind}`;
        const command = ['sh', '-c', 'until [ -e /tmp/go ]; do sleep 0.05; done; exec /serve.sh'];
        await create(name, { image: 'cloudless/test:1', command, ports, readinessProbe: probe });
        await waitForReplica(
          name,
          ({ ready, reason }) => !ready && /^readiness probe: .*3 of 3 failed/.test(reason),
        );
        await runInside(name, 'touch /tmp/go');
        if (kind === 'grpc') {
          // the server speaks only HTTP/1, and this reason shows that the probe has reached the
          // server
          await waitForReplica(name, ({ reason }) =>
            /readiness probe: the server does not speak HTTP\/2/.test(reason),
          );
        } else {
          const { ip, port } = (await cluster.waitUntilSettled(name)).status!.replicas[0]!
            .endpoints[0]!;
          expect((await fetchText(`http://${ip}:${port}/version`)).trim()).toBe('1');
        }
        await remove(name);
      },
    );
  });
});

/** A registry that accepts connections and never answers. */
class SilentRegistry {
  private readonly sockets = new Set<Socket>();
  private readonly waiters = new Set<() => void>();

  private constructor(private readonly server: Server) {
    server.on('connection', (socket) => {
      this.sockets.add(socket);
      socket.on('error', () => undefined);
      for (const resolve of this.waiters) resolve();
      this.waiters.clear();
    });
  }

  static async listen(): Promise<SilentRegistry> {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return new SilentRegistry(server);
  }

  get port(): number {
    return (this.server.address() as AddressInfo).port;
  }

  async waitForRequest(): Promise<void> {
    while (this.sockets.size === 0) await new Promise<void>((resolve) => this.waiters.add(resolve));
  }

  async close(): Promise<void> {
    const closed = new Promise((resolve) => this.server.close(resolve));
    for (const socket of this.sockets) socket.destroy();
    await closed;
  }
}
