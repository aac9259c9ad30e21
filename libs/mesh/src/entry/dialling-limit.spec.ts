import { once } from 'node:events';
import { aService, anEndpoint, TestCluster } from '../testing/test-cluster.js';
import { DiallingClients } from './dialling-clients.js';

const VIP = '10.96.0.20';

let cluster: TestCluster;
beforeEach(async () => void (cluster = await TestCluster.create()));
afterEach(() => cluster.close());

it('connections that wait for an endpoint count against the limit of connections', async () => {
  const a = await cluster.addProxy('a', { limits: { maxConnections: 2 } });
  // The proxy of this node is listed and does not run, so no connection is accepted.
  const node = cluster.aNode('b', { address: '', hostId: 'b' }, 'none');
  await cluster.update({
    nodes: [node],
    services: [aService('web', VIP)],
    endpoints: [anEndpoint('web', 'r1', 'b', 1)],
  });
  const waiting = [await a.dial(VIP, 80), await a.dial(VIP, 80)];
  // The reset may arrive before the client knows that it is connected.
  const third = await a.dial(VIP, 80).catch(() => undefined);
  if (third !== undefined) await once(third, 'close');
  expect(a.proxy.status().openConnections).toBe(0);
  const labels = { service: 'default/web', port: 'http' };
  expect(
    await a.meter.read('cloudless_network_refused_connections_total', {
      ...labels,
      reason: 'tooManyConnections',
    }),
  ).toBe(1);
  for (const socket of waiting) socket.destroy();
  await cluster.clock.advance(60_000);
});

describe('DiallingClients', () => {
  it('leaves room for other clients when one address has its share under way', () => {
    const dialling = new DiallingClients(1_000);
    const accepted = Array.from({ length: 200 }, () => dialling.begin('a', 0)).filter(Boolean);
    expect([accepted.length, dialling.begin('b', 0), dialling.begin('b', 899)]).toEqual([
      100,
      true,
      false,
    ]);
    dialling.end('a');
    expect([dialling.begin('a', 0), dialling.size]).toEqual([true, 101]);
  });
});
