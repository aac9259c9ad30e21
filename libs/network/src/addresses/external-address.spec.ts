import { parseAddressRange } from './address-range.js';
import {
  explainRefusedAddress,
  findServerAddress,
  toCanonicalAddress,
} from './external-address.js';

const ranges = [parseAddressRange('10.96.0.0/16')];

describe('explainRefusedAddress', () => {
  it.each([
    '192.0.3.1',
    '10.0.0.5',
    '172.16.0.1',
    '192.168.1.1',
    '8.8.8.8',
    '2001:4860:4860::8888',
    'fd12:3456::1',
  ])('permits %s', (address) => {
    expect(explainRefusedAddress(address, ranges)).toBeUndefined();
  });

  it.each([
    ['127.0.0.1', 'loopback'],
    ['127.255.255.254', 'loopback'],
    ['::1', 'IPv4 address in IPv6 form'],
    ['0.0.0.0', 'every address'],
    ['0.1.2.3', '0.1.2.3 '],
    ['::', 'IPv4 address in IPv6 form'],
    ['169.254.169.254', 'link-local'],
    ['fe80::1', 'link-local'],
    ['fe80::1%eth0', 'is not an IP address'],
    ['224.0.0.1', 'multicast'],
    ['ff02::1', 'multicast'],
    ['255.255.255.255', 'broadcast'],
    ['240.0.0.1', 'reserved'],
    ['192.0.0.192', 'reserved'],
    ['::ffff:127.0.0.1', 'IPv4 address in IPv6 form'],
    ['::ffff:a9fe:a9fe', 'IPv4 address in IPv6 form'],
    ['::127.0.0.1', 'IPv4 address in IPv6 form'],
    ['64:ff9b::a9fe:a9fe', 'translated'],
    ['2002:7f00:1::', 'tunnelled'],
    ['fd00:ec2::254', 'credentials of machines'],
    ['100.100.100.200', 'credentials of machines'],
    ['168.63.129.16', 'credentials of machines'],
    ['10.96.3.4', '10.96.0.0/16'],
    ['0177.0.0.1', 'is not an IP address'],
    ['2130706433', 'is not an IP address'],
    ['0x7f000001', 'is not an IP address'],
    ['127.1', 'is not an IP address'],
    ['localhost', 'is not an IP address'],
    ['', 'is not an IP address'],
  ])('refuses %s: %s', (address, reason) => {
    expect(explainRefusedAddress(address, ranges)).toContain(reason);
  });
});

describe('toCanonicalAddress', () => {
  it('writes equal addresses alike', () => {
    expect(toCanonicalAddress('2001:DB8:0:0:0:0:0:1')).toBe('2001:db8::1');
    expect(toCanonicalAddress('192.0.2.1')).toBe('192.0.2.1');
  });
});

describe('findServerAddress', () => {
  it.each([
    ['https://10.0.0.5:7443', '10.0.0.5'],
    ['http://10.0.0.5/', '10.0.0.5'],
    ['10.0.0.5:9443', '10.0.0.5'],
    ['10.0.0.5', '10.0.0.5'],
    ['[FD12:0::5]:9443', 'fd12::5'],
    ['https://[fd12::5]:7443', 'fd12::5'],
    ['node-1.example.com:9443', undefined],
    ['https://10.1:7443', undefined],
    ['', undefined],
  ])('of "%s" is %s', (server, expected) => {
    expect(findServerAddress(server)).toBe(expected);
  });
});
