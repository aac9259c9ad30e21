import { ServiceSpec_Type } from '@cloudless/api';
import { aService, anEndpoint, TestCluster } from '../testing/test-cluster.js';
import { ADDRESS_CHECK_MS } from './machine-addresses.js';

let cluster: TestCluster;
beforeEach(async () => void (cluster = await TestCluster.create()));
afterEach(() => cluster.close());

const ADDRESS = '192.0.2.60';
const WEB = aService('web', '', {
  type: ServiceSpec_Type.LOAD_BALANCER,
  externalIps: [ADDRESS],
  ports: [{ name: 'http', port: 80 }],
});

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
    await cluster.clock.advance(2 * ADDRESS_CHECK_MS);
    (await a.dial(ADDRESS, 80)).destroy();
  });
});
