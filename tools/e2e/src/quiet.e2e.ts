import { connect, createServer, type AddressInfo, type Server } from 'node:net';
import { QUICK, RealCluster } from './cluster.js';

/** Carries bytes between an agent and its coordinator, and counts them. */
class CountingProxy {
  bytes = 0;
  private constructor(
    private readonly server: Server,
    readonly url: string,
  ) {}

  static async to(target: string): Promise<CountingProxy> {
    const { hostname, port } = new URL(target);
    const server = createServer((near) => {
      const far = connect(Number(port), hostname);
      for (const [from, to] of [
        [near, far],
        [far, near],
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

/** Some pings and a report of usage fit in it, a conversation without end does not. */
const QUIET_BYTES = 8_192;

/**
 * What agent and coordinator exchange while the coordinator answers a few hundred calls of somebody
 * else.
 */
async function bytesMeanwhile(): Promise<number> {
  const before = proxy.bytes;
  for (let count = 0; count < 300; count += 1) await cluster.client.listWorkloads({});
  return proxy.bytes - before;
}

describe('an agent and its coordinator', () => {
  it('have little to say while nothing changes', async () => {
    await cluster.client.createWorkload({
      name: 'still',
      spec: { ...QUICK, command: ['sleep', '1000'], replicas: 2 },
    });
    await cluster.settled('still');
    expect(await bytesMeanwhile()).toBeLessThan(QUIET_BYTES);
  });

  it('have little to say after replicas were replaced', async () => {
    await cluster.client.updateWorkload({ name: 'still', spec: { env: { VERSION: '2' } } });
    await cluster.settled('still');
    expect(await bytesMeanwhile()).toBeLessThan(QUIET_BYTES);
  });

  it('have little to say after a workload was deleted', async () => {
    await cluster.client.deleteWorkload({ name: 'still' });
    await cluster.gone('still');
    expect(await bytesMeanwhile()).toBeLessThan(QUIET_BYTES);
  });
});
