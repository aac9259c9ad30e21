import type { NetworkInterfaceInfo } from 'node:os';
import { listHostAddresses, listLocalAddresses } from './host-addresses.js';

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
