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
/** More containers than an agent starts in parallel. */
const MANY = 12;

describeContainers('failing containers', () => {
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
    const { status } = await cluster.waitForWorkload(name, ({ status: now }) =>
      now!.replicas.some(fits),
    );
    return status!.replicas.find(fits)!;
  };
  const listMessages = async (workload: string, reason: string): Promise<readonly string[]> =>
    (await cluster.client.listEvents({ workload, pageSize: 1_000 })).events
      .filter((event) => event.reason === reason)
      .map(({ message }) => message);

  it('reports a container that the kernel killed over its memory limit as out of memory', async () => {
    // Uses memory: tail keeps the last 200 MB of an endless input.
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

  it('shows the error of the registry for a missing image, retries with back-off, and starts other containers meanwhile', async () => {
    await create('unknown', { image: 'no-such-image:7', replicas: MANY });
    const words = /no-such-image:7.*not found/;
    // The end of the previous attempt is still shown when the next attempt has started without a
    // reason yet.
    const replica = await waitForReplica('unknown', ({ imagePull }) =>
      words.test(imagePull?.reason ?? ''),
    );
    expect(replica).toMatchObject({ ready: false, imagePull: { image: 'no-such-image:7' } });
    await waitForReplica('unknown', ({ reason, lastEndReason }) =>
      words.test(`${reason} ${lastEndReason}`),
    );
    await waitForReplica('unknown', ({ reason }) => /restarting in/.test(reason));
    expect(
      (await listMessages('unknown', 'ImagePullFailed')).some((message) => words.test(message)),
    ).toBe(true);
    expect((await cluster.runCtl('describe', 'unknown')).stdout).toMatch(words);
    await create('other', { image: 'nginx:alpine' });
    await cluster.waitUntilSettled('other');
    await remove('unknown');
    await remove('other');
  });

  it('delays only the replicas that need a registry that never answers', async () => {
    const silent = await SilentRegistry.listen();
    try {
      await create('waiting', { image: `127.0.0.1:${silent.port}/slow:1`, replicas: MANY });
      await cluster.waitForWorkload('waiting', ({ status }) =>
        status!.replicas.every(({ reason }) => reason.startsWith('pulling ')),
      );
      await silent.waitForRequest();
      await create('other', { image: 'nginx:alpine', replicas: 2 });
      const { status } = await cluster.waitUntilSettled('other');
      expect(status!.readyReplicas).toBe(2);
      expect((await cluster.client.getWorkload({ name: 'waiting' })).status!.readyReplicas).toBe(0);
      await remove('other');
      await remove('waiting'); // waiting replicas are ended as well
    } finally {
      await silent.close();
    }
  });

  describe('probes', () => {
    const quick = { period: durationFromMs(200), timeout: durationFromMs(10_000) };
    const exec = (...command: readonly string[]) => ({
      check: { case: 'exec' as const, value: { command: [...command] } },
      ...quick,
    });
    const ports = [{ name: 'http', containerPort: 8080 }];
    const run = (name: string, script: string) =>
      cluster.agentClient
        .execCommand({ name, command: ['sh', '-c', script] })
        .then(({ exitCode }) => expect(exitCode).toBe(0));

    it('restarts the container in place when its liveness command fails', async () => {
      await create('live', {
        image: 'cloudless/test:1',
        livenessProbe: exec('test', '!', '-e', '/tmp/broken'),
      });
      const before = (await cluster.waitUntilSettled('live')).status!.replicas[0]!;
      await run('live', 'touch /tmp/broken');
      const after = await waitForReplica(
        'live',
        ({ restarts, ready: now }) => restarts === 1 && now,
      );
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
      'is not ready by a $kind probe until the container listens on its address',
      async ({ kind, probe }) => {
        const name = `probed-${kind}`;
        const command = ['sh', '-c', 'until [ -e /tmp/go ]; do sleep 0.05; done; exec /serve.sh'];
        await create(name, { image: 'cloudless/test:1', command, ports, readinessProbe: probe });
        await waitForReplica(
          name,
          ({ ready, reason }) => !ready && /^readiness probe: .*3 of 3 failed/.test(reason),
        );
        await run(name, 'touch /tmp/go');
        if (kind === 'grpc') {
          // The server only speaks HTTP/1; this reason shows that the probe reached the server.
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
  private readonly waiting = new Set<() => void>();

  private constructor(private readonly server: Server) {
    server.on('connection', (socket) => {
      this.sockets.add(socket);
      socket.on('error', () => undefined);
      for (const resolve of this.waiting) resolve();
      this.waiting.clear();
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
    while (this.sockets.size === 0) await new Promise<void>((resolve) => this.waiting.add(resolve));
  }

  async close(): Promise<void> {
    const closed = new Promise((resolve) => this.server.close(resolve));
    for (const socket of this.sockets) socket.destroy();
    await closed;
  }
}
