import { listContainerAddresses } from './container-routes.js';

describe('addresses of containers without a bridge', () => {
  it('are those with a route of their own to an interface of two ends', () => {
    const routes = [
      'Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT',
      'eth0\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0',
      'eth0\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0',
      'eth0\t0100A8C0\t00000000\t0005\t0\t0\t0\tFFFFFFFF\t0\t0\t0',
      'veth1\t0702580A\t00000000\t0005\t0\t0\t0\tFFFFFFFF\t0\t0\t0',
      'veth2\t0802580A\t0100A8C0\t0007\t0\t0\t0\tFFFFFFFF\t0\t0\t0',
      '',
    ].join('\n');
    const isPaired = (name: string): boolean => name.startsWith('veth');
    expect(listContainerAddresses(routes, isPaired)).toEqual(['10.88.2.7']);
  });
});
