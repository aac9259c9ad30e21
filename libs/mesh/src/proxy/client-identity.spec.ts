import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import type { LocalClient } from '../ports.js';
import { aService, anEndpoint, TestCluster } from '../testing/test-cluster.js';
import { WorkloadPlaces } from './workload-places.js';

const VIP = '10.96.0.20';
const shop: LocalClient = { namespace: 'default', workload: 'shop' };

describe('the identity of a client', () => {
  let cluster: TestCluster;
  beforeEach(async () => void (cluster = await TestCluster.create()));
  afterEach(() => cluster.close());

  it('is at both nodes the workload, once the cluster knows a replica on the node', async () => {
    const a = await cluster.addProxy('a', { identifyClient: () => shop });
    const b = await cluster.addProxy('b');
    const port = await cluster.serve((socket) => socket.end('hello'));
    await cluster.update({
      services: [aService('web', VIP), aService('shop', '10.96.0.21')],
      endpoints: [anEndpoint('web', 'r1', 'b', port), anEndpoint('shop', 's1', 'b', port)],
    });
    const visit = async (): Promise<void> => {
      const socket = await a.dial(VIP, 80);
      await once(socket.resume().end(), 'close');
    };
    await visit();
    // The workload has a replica on b, not on a: a must not speak for the workload.
    expect(b.access.at(-1)?.clientIdentity).toBe('spiffe://cloudless/node/a via a');
    await cluster.update({ endpoints: [anEndpoint('shop', 's2', 'a', port)] });
    await cluster.clock.advance(1_000);
    await visit();
    const identity = 'spiffe://cloudless/workload/default.shop';
    expect(b.access.at(-1)?.clientIdentity).toBe(`${identity} via a`);
    expect(a.access.at(-1)?.clientIdentity).toBe(identity);
  });

  it('is in the access log of the node of the endpoint for UDP sessions too', async () => {
    const a = await cluster.addProxy('a');
    const b = await cluster.addProxy('b');
    const at = await cluster.serveUdp('far:');
    const ports = [{ name: 'udp', port: 53, protocol: 1 as const }];
    await cluster.update({
      services: [aService('dns', VIP, { ports })],
      endpoints: [
        anEndpoint('dns', 'r1', 'b', at, { ports: [{ name: 'udp', ip: '127.0.0.1', port: at }] }),
      ],
    });
    const client = createSocket('udp4');
    client.send('x', await a.udpPort(VIP, 53), '127.0.0.1');
    await once(client, 'message');
    client.close();
    await cluster.update({ removedEndpoints: ['default/dns/r1'] });
    while (b.access.length === 0) await new Promise((resolve) => setImmediate(resolve));
    expect(b.access).toMatchObject([
      {
        ...{ protocol: 'udp', side: 'exit', service: 'default/dns', port: 'udp', path: 'link' },
        clientIdentity: 'spiffe://cloudless/node/a via a',
        endpointIdentity: 'spiffe://cloudless/workload/default.dns',
        ...{ sentBytes: 1, receivedBytes: 5 },
      },
    ]);
  });

  it('is the workload with the address on this node, unless several share the address', async () => {
    const a = await cluster.addProxy('a');
    const at = (service: string, id: string, nodeId: string, ip: string) =>
      anEndpoint(service, id, nodeId, 80, { ports: [{ name: 'http', ip, port: 80 }] });
    await cluster.update({
      services: [aService('web', VIP), aService('shop', '10.96.0.21')],
      endpoints: [
        at('web', 'r1', 'a', '10.1.0.2'),
        at('web', 'r2', 'a', '10.1.0.9'),
        at('web', 'r3', 'b', '10.1.0.3'),
        at('web', 'r4', 'a', '192.0.2.1'),
        at('shop', 's1', 'a', '10.1.0.4'),
        at('shop', 's2', 'a', '10.1.0.9'),
      ],
    });
    const places = new WorkloadPlaces({
      ...{ view: a.proxy.view, clock: cluster.clock, nodeId: 'a' },
      isShared: (address) => address === '192.0.2.1',
    });
    const found = ['10.1.0.2', '::ffff:10.1.0.4', '10.1.0.9', '10.1.0.3', '192.0.2.1'].map(
      (address) => places.clientAt(address)?.workload,
    );
    expect(found).toEqual(['web', 'shop', undefined, undefined, undefined]);
  });
});
