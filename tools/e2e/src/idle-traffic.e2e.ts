import { connect, createServer, type AddressInfo, type Server } from 'node:net';
import { QUICK, RealCluster } from './support/cluster.js';

/** A TCP proxy between an agent and its coordinator that counts the bytes of both directions. */
class CountingProxy {
  bytes = 0;
  private constructor(
    private readonly server: Server,
    readonly url: string,
  ) {}

  static async to(target: string): Promise<CountingProxy> {
    const { hostname, port } = new URL(target);
    const server = createServer((agentSocket) => {
      const coordinatorSocket = connect(Number(port), hostname);
      for (const [from, to] of [
        [agentSocket, coordinatorSocket],
        [coordinatorSocket, agentSocket],
      ] as const) {
        from.on('data', (chunk) => (proxy.bytes += chunk.length));
        from.on('error', () => to.destroy());
        from.pipe(to);
      }
    }).listen(0, '127.0.0.1');
    await new Promise((resolve) => server.once('listening', resolve));
    const proxy = new CountingProxy(
      server,
      `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    );
    return proxy;
  }

  close(): void {
    this.server.close();
  }
}

let cluster: RealCluster;
let proxy: CountingProxy;
beforeAll(async () => {
  cluster = await RealCluster.start([]);
  proxy = await CountingProxy.to(cluster.url);
  await cluster.startAgent('agent-1', 'zone-a', ['--coordinator', proxy.url]);
});
afterAll(async () => {
  await cluster.stop();
  proxy.close();
});

/** Upper bound of idle traffic: enough for pings and a usage report, not for repeated messages. */
const QUIET_BYTES = 8_192;

/**
 * Returns the bytes between agent and coordinator while the coordinator answers 300 calls of
 * another client.
 */
async function countIdleBytes(): Promise<number> {
  const before = proxy.bytes;
  for (let count = 0; count < 300; count += 1) await cluster.client.listWorkloads({});
  return proxy.bytes - before;
}

describe('traffic between agent and coordinator', () => {
  it('stays below 8 KiB in 300 calls while nothing changes', async () => {
    await cluster.client.createWorkload({
      name: 'still',
      spec: { ...QUICK, command: ['sleep', '1000'], replicas: 2 },
    });
    await cluster.waitUntilSettled('still');
    expect(await countIdleBytes()).toBeLessThan(QUIET_BYTES);
  });

  it('stays below 8 KiB in 300 calls after replicas were replaced', async () => {
    await cluster.client.updateWorkload({ name: 'still', spec: { env: { VERSION: '2' } } });
    await cluster.waitUntilSettled('still');
    expect(await countIdleBytes()).toBeLessThan(QUIET_BYTES);
  });

  it('stays below 8 KiB in 300 calls after a workload was deleted', async () => {
    await cluster.client.deleteWorkload({ name: 'still' });
    await cluster.waitUntilDeleted('still');
    expect(await countIdleBytes()).toBeLessThan(QUIET_BYTES);
  });
});
