import type { NetworkInterfaceInfo } from 'node:os';
import { listHostAddresses, listLocalAddresses, listReportedAddresses } from './host-addresses.js';

const anAddress = (address: string, internal = false): NetworkInterfaceInfo =>
  ({ address, internal, family: address.includes(':') ? 'IPv6' : 'IPv4' }) as NetworkInterfaceInfo;
const INTERFACES = {
  lo: [anAddress('127.0.0.1', true), anAddress('::1', true)],
  eth0: [anAddress('10.77.0.11'), anAddress('fd00::11'), anAddress('fe80::1')],
  eth1: [anAddress('10.77.0.11'), anAddress('fe80::1')],
};

it('node ports listen at the IPv4 addresses that other machines reach', () => {
  expect(listHostAddresses(INTERFACES)).toEqual(['10.77.0.11']);
});

it('the local addresses of a machine include loopback, and name the interface of fe80::/10', () => {
  expect(listLocalAddresses(INTERFACES)).toEqual([
    ...['127.0.0.1', '::1', '10.77.0.11', 'fd00::11', 'fe80::1%eth0', 'fe80::1%eth1'],
  ]);
});

describe('the addresses that a node reports', () => {
  it('are those of its interfaces, also of loopback, and no loopback or link-local address', () => {
    const external = anAddress('203.0.113.9', true);
    const reported = listReportedAddresses(() => ({
      ...INTERFACES,
      lo: [...INTERFACES.lo, external],
    }));
    expect(reported).toEqual(['10.77.0.11', '203.0.113.9', 'fd00::11']);
  });

  it.each([
    {
      name: 'cannot be listed',
      list: () => {
        throw new Error('EACCES');
      },
    },
    {
      name: 'are more than the coordinator accepts',
      list: () => ({ eth0: Array.from({ length: 257 }, (_, at) => anAddress(`10.0.${at}.1`)) }),
    },
  ])('are not known when they $name', ({ list }) => {
    expect(listReportedAddresses(list)).toBeUndefined();
  });
});
