import { createSeededRandom } from '@cloudless/base';
import type { PortRequest } from '@cloudless/runtime';
import type { SupervisorSettings } from '../../wire/messages.js';
import { PortPool } from './port-pool.js';

/** A range from which neither agents nor the system assign ports. */
const settings = {
  portRange: { from: 12_000, to: 17_999 },
  address: '127.0.0.1',
} as SupervisorSettings;
const http: PortRequest = { name: 'http', port: 80, protocol: 'tcp' };
const dns: PortRequest = { name: 'dns', port: 53, protocol: 'udp' };

/** Pools that start at the same port, as the pools of several supervisors on one machine may. */
const pools: PortPool[] = [];
function aPool(): PortPool {
  const pool = new PortPool(createSeededRandom(7));
  pools.push(pool);
  return pool;
}
const allocatedPorts: number[] = [];
const allocateFrom = async (
  pool: PortPool,
  ...requests: PortRequest[]
): Promise<readonly number[]> => {
  const ports = await pool.allocate(requests, settings);
  allocatedPorts.push(...ports);
  return ports;
};
afterEach(() => {
  for (const pool of pools.splice(0)) pool.release(allocatedPorts);
  allocatedPorts.length = 0;
});

const describeLinux = process.platform === 'linux' ? describe : describe.skip;

describeLinux('ports of several supervisors on one machine', () => {
  it.each([http, dns])(
    'are different although no process listens yet ($protocol)',
    async (request) => {
      const [first] = await allocateFrom(aPool(), request);
      const [second] = await allocateFrom(aPool(), request);
      expect(second).not.toBe(first);
    },
  );

  it('are different when many are assigned at the same time', async () => {
    const all = await Promise.all(
      Array.from({ length: 6 }, () => allocateFrom(aPool(), http, http, http)),
    );
    expect(new Set(all.flat()).size).toBe(18);
  });

  it('stay assigned to a container that a later supervisor has adopted', async () => {
    const first = aPool();
    const [port = 0] = await allocateFrom(first, http);
    const later = aPool();
    first.release([port]); // as the kernel does when the supervisor is killed
    await later.reserve([port]);
    expect(await allocateFrom(aPool(), http)).not.toEqual([port]);
  });

  it('can be assigned by any supervisor after the container has ended', async () => {
    const [first, second] = [aPool(), aPool()];
    const ports = await allocateFrom(first, http);
    first.release(ports);
    expect(await allocateFrom(second, http)).toEqual(ports);
  });

  it('are not assigned again at once after their release', async () => {
    const pool = new PortPool({ ...createSeededRandom(7), next: () => 0.5 });
    pools.push(pool);
    const [first] = await allocateFrom(pool, http);
    pool.release([first ?? 0]);
    const [second] = await allocateFrom(pool, http);
    expect(second).not.toBe(first);
  });

  it('are all released when the range has too few free ports', async () => {
    const pool = aPool();
    const [port = 0] = await allocateFrom(pool, http);
    pool.release([port]);
    const narrow = { ...settings, portRange: { from: port, to: port } };
    const tooMany = aPool().allocate([http, http], narrow);
    await expect(tooMany).rejects.toMatchObject({ kind: 'exhausted' });
    expect(await aPool().allocate([http], narrow)).toEqual([port]);
    allocatedPorts.push(port);
  });
});
