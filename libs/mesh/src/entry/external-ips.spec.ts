import { ServiceSpec_Type } from '@cloudless/api';
import { aService, anEndpoint, TestCluster } from '../testing/test-cluster.js';
import type { ReservableListener } from './plan-listeners.js';
import { ADDRESS_CHECK_MS } from './machine-addresses.js';
import { EXTERNAL_CHECK_MS } from './service-listeners.js';

let cluster: TestCluster;
beforeEach(async () => void (cluster = await TestCluster.create()));
afterEach(() => cluster.close());

const ADDRESS = '192.0.2.60';
const aWeb = (ports: readonly number[]) =>
  aService('web', '', {
    ...{ type: ServiceSpec_Type.LOAD_BALANCER, externalIps: [ADDRESS] },
    ports: ports.map((port) => ({ name: port === 80 ? 'http' : 'other', port })),
  });
const WEB = aWeb([80]);

describe('external addresses of services', () => {
  it.each([
    { code: 'EADDRNOTAVAIL', problems: [] },
    { code: 'EADDRINUSE', problems: [`cannot listen at tcp ${ADDRESS}:80: EADDRINUSE`] },
  ])('report the problems $problems after $code', async ({ code, problems }) => {
    const state = { code: code as string | undefined };
    const refuseListening = (address: string): string | undefined =>
      address === ADDRESS ? state.code : undefined;
    const a = await cluster.addProxy('a', { refuseListening });
    const port = await cluster.serve((socket) => socket.pipe(socket));
    await cluster.update({ services: [WEB], endpoints: [anEndpoint('web', 'r1', 'a', port)] });
    await cluster.clock.advance(ADDRESS_CHECK_MS);
    expect(a.proxy.status().problems).toEqual(problems);
    state.code = undefined;
    await cluster.clock.advance(2 * EXTERNAL_CHECK_MS);
    (await a.dial(ADDRESS, 80)).destroy();
  });

  it('are served at the next look at the interfaces when the machine gets them', async () => {
    let addresses = ['192.168.1.4'];
    const a = await cluster.addProxy('a', {
      listMachineAddresses: () => addresses,
      refuseListening: (at) =>
        at === ADDRESS && !addresses.includes(at) ? 'EADDRNOTAVAIL' : undefined,
    });
    const port = await cluster.serve((socket) => socket.pipe(socket));
    await cluster.update({ services: [WEB], endpoints: [anEndpoint('web', 'r1', 'a', port)] });
    addresses = [...addresses, ADDRESS];
    await cluster.clock.advance(ADDRESS_CHECK_MS);
    (await a.dial(ADDRESS, 80)).destroy();
    await cluster.clock.advance(2 * EXTERNAL_CHECK_MS);
    expect([a.isListening(ADDRESS, 80), a.proxy.status().problems]).toEqual([true, []]);
  });

  it('are not served where another server of the machine has the port', async () => {
    const explainReserved = ({ address, port: at, scope }: ReservableListener) =>
      address === ADDRESS && at === 80 && scope === 'external'
        ? 'the ingress has this address'
        : undefined;
    const a = await cluster.addProxy('a', { explainReserved });
    const port = await cluster.serve((socket) => socket.pipe(socket));
    const ports = ['http', 'other'].map((name) => ({ name, ip: '127.0.0.1', port }));
    const endpoint = anEndpoint('web', 'r1', 'a', port, { ports });
    await cluster.update({ services: [aWeb([80, 81])], endpoints: [endpoint] });
    await cluster.clock.advance(ADDRESS_CHECK_MS);
    expect([a.isListening(ADDRESS, 80), a.isListening(ADDRESS, 81)]).toEqual([false, true]);
    expect(a.proxy.status().problems).toEqual([
      `cannot listen at tcp ${ADDRESS}:80: the ingress has this address; give service "default/web" another address or port`,
    ]);
    await cluster.update({ removedServices: ['default/web'] });
    expect(a.proxy.status().problems).toEqual([]);
  });
});
