import { once } from 'node:events';
import { ServiceSpec_Type } from '@cloudless/api';
import { aService, anEndpoint, TestCluster } from '../testing/test-cluster.js';
import type { ReservableListener } from './plan-listeners.js';
import { ADDRESS_CHECK_MS } from './machine-addresses.js';

let cluster: TestCluster;
beforeEach(async () => void (cluster = await TestCluster.create()));
afterEach(() => cluster.close());

const NODE_PORT = 30_080;
const CLUSTER_IP = '10.96.0.20';
const WEB = aService('web', '', {
  type: ServiceSpec_Type.NODE_PORT,
  ports: [{ name: 'http', port: 80, nodePort: NODE_PORT }],
});

describe('node ports', () => {
  it('listen at addresses that come, and no longer at addresses that go', async () => {
    let listed = ['192.168.1.4'];
    const a = await cluster.addProxy('a', { listMachineAddresses: () => listed });
    const port = await cluster.serve((socket) => socket.pipe(socket));
    await cluster.update({ services: [WEB], endpoints: [anEndpoint('web', 'r1', 'a', port)] });
    const held = await a.dial('192.168.1.4', NODE_PORT);
    held.write('accepted');
    await once(held, 'data');
    listed = ['10.96.0.99', '172.16.0.9']; // the first one is a virtual address
    await cluster.clock.advance(ADDRESS_CHECK_MS);
    const opened = await a.dial('172.16.0.9', NODE_PORT);
    const isListening = ['192.168.1.4', '10.96.0.99', '172.16.0.9'].map((address) =>
      a.isListening(address, NODE_PORT),
    );
    expect(isListening).toEqual([false, false, true]);
    held.write('still');
    expect(String(await once(held, 'data'))).toBe('still');
    for (const socket of [held, opened]) socket.destroy();
  });

  it('are not served where another server of the machine has the port', async () => {
    const addresses = ['192.168.1.4', '192.168.1.5'];
    const explainReserved = ({ address, port, scope }: ReservableListener) =>
      scope === 'node' && address === addresses[0] && port === NODE_PORT
        ? 'the ingress has this port'
        : undefined;
    const a = await cluster.addProxy('a', {
      listMachineAddresses: () => addresses,
      explainReserved,
    });
    const port = await cluster.serve((socket) => socket.pipe(socket));
    await cluster.update({ services: [WEB], endpoints: [anEndpoint('web', 'r1', 'a', port)] });
    await cluster.clock.advance(ADDRESS_CHECK_MS);
    expect(addresses.map((address) => a.isListening(address, NODE_PORT))).toEqual([false, true]);
    expect(a.proxy.status().problems).toEqual([
      `cannot listen at tcp 192.168.1.4:${NODE_PORT}: the ingress has this port; give service "default/web" another node port`,
    ]);
  });

  it('are one problem for all addresses of a port where the proxy cannot listen', async () => {
    const addresses = ['192.168.1.4', '192.168.1.5', '192.168.1.6'];
    const a = await cluster.addProxy('a', {
      listMachineAddresses: () => addresses,
      explainReserved: ({ scope }) => (scope === 'node' ? 'the ingress has this port' : undefined),
      refuseListening: (address) => (address === CLUSTER_IP ? 'EADDRINUSE' : undefined),
    });
    const port = await cluster.serve((socket) => socket.pipe(socket));
    const ports = [
      { name: 'http', port: 80, nodePort: NODE_PORT },
      { name: 'other', port: 81, nodePort: NODE_PORT + 1 },
    ];
    const web = aService('web', CLUSTER_IP, { type: ServiceSpec_Type.NODE_PORT, ports });
    const endpoint = anEndpoint('web', 'r1', 'a', port, {
      ports: ports.map(({ name }) => ({ name, ip: '127.0.0.1', port })),
    });
    await cluster.update({ services: [web], endpoints: [endpoint] });
    await cluster.clock.advance(ADDRESS_CHECK_MS);
    const advice = 'the ingress has this port; give service "default/web" another node port';
    expect([...a.proxy.status().problems].sort()).toEqual([
      `cannot listen at tcp ${CLUSTER_IP}:80: EADDRINUSE`,
      `cannot listen at tcp ${CLUSTER_IP}:81: EADDRINUSE`,
      `cannot listen at tcp 192.168.1.4:${NODE_PORT} and 2 more: ${advice}`,
      `cannot listen at tcp 192.168.1.4:${NODE_PORT + 1} and 2 more: ${advice}`,
    ]);
  });
});
