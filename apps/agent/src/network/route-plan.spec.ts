import fc from 'fast-check';
import { planRoute, type MachineRoute } from './route-plan.js';

const loopback: MachineRoute = { type: 'local', dst: '127.0.0.0/8', dev: 'lo' };
const usual: readonly MachineRoute[] = [
  loopback,
  { dst: 'default', gateway: '192.168.1.1', dev: 'eth0' },
  { dst: '192.168.1.0/24', dev: 'eth0' },
  { type: 'local', dst: '192.168.1.7', dev: 'eth0' },
];

describe('planRoute', () => {
  it.each([
    { name: 'adds a range that nothing uses', cidr: '10.96.0.0/16', more: [], kind: 'add' },
    {
      name: 'needs no route for loopback addresses',
      cidr: '127.64.0.0/16',
      more: [],
      kind: 'ready',
    },
    {
      name: 'keeps a route that exists',
      cidr: '10.96.0.0/16',
      more: [{ type: 'local', dst: '10.96.0.0/16', dev: 'lo' }],
      kind: 'ready',
    },
    {
      name: 'takes a part of what a gateway reaches',
      cidr: '10.96.0.0/16',
      more: [{ dst: '10.0.0.0/8', gateway: '192.168.1.9', dev: 'tun0' }],
      kind: 'add',
    },
    { name: 'refuses text that is no range', cidr: '10.96.0.0; reboot', more: [], kind: 'refuse' },
    { name: 'refuses an address without a prefix', cidr: '10.96.0.1', more: [], kind: 'refuse' },
    { name: 'refuses everything', cidr: '0.0.0.0/0', more: [], kind: 'refuse' },
    { name: 'refuses IPv6', cidr: 'fd00::/64', more: [], kind: 'refuse' },
  ])('$name', ({ cidr, more, kind }) => {
    expect(planRoute(cidr, [...usual, ...more]).kind).toBe(kind);
  });

  it.each([
    { what: 'a directly reachable network', dst: '10.0.0.0/8', dev: 'eth1' },
    { what: 'a part of the range behind a gateway', dst: '10.96.3.0/24', gateway: '192.168.1.9' },
    { what: 'an address of this machine', type: 'local', dst: '10.96.0.4', dev: 'eth1' },
  ])('refuses a range that overlaps $what, and names it', ({ what: _, ...route }) => {
    const plan = planRoute('10.96.0.0/16', [...usual, route]);
    expect(plan).toMatchObject({ kind: 'refuse', reason: expect.stringContaining(route.dst) });
  });

  it('never adds a route to an address that the machine reaches directly', () => {
    const byte = fc.integer({ min: 0, max: 255 });
    const range = fc
      .tuple(byte, byte, byte, byte, fc.integer({ min: 1, max: 32 }))
      .map(([a, b, c, d, prefix]) => `${a}.${b}.${c}.${d}/${prefix}`);
    fc.assert(
      fc.property(range, (cidr) => {
        const plan = planRoute(cidr, [{ dst: cidr, dev: 'eth0' }]);
        expect(plan.kind).toBe('refuse');
      }),
    );
  });
});
