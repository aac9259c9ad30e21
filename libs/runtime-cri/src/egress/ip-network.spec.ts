import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { arbNetwork, contains } from '../testing/networks.js';
import { formatIpNetwork, parseIpAddress, parseIpNetwork, selectOutermost } from './ip-network.js';

describe('parseIpNetwork', () => {
  it.each([
    { text: '0.0.0.0/0', expected: '0.0.0.0/0' },
    { text: '10.0.0.0/8', expected: '10.0.0.0/8' },
    { text: '255.255.255.255/32', expected: '255.255.255.255/32' },
    { text: '::/0', expected: '0:0:0:0:0:0:0:0/0' },
    { text: '2001:DB8::/32', expected: '2001:db8:0:0:0:0:0:0/32' },
    { text: '2001:db8::1/128', expected: '2001:db8:0:0:0:0:0:1/128' },
    { text: '::ffff:192.0.2.1/128', expected: '0:0:0:0:0:ffff:c000:201/128' },
    { text: 'fe80::/10', expected: 'fe80:0:0:0:0:0:0:0/10' },
  ])('reads $text', ({ text, expected }) => {
    const network = parseIpNetwork(text);
    expect(network && formatIpNetwork(network)).toBe(expected);
  });

  it.each([
    ...['', '10.0.0.0', '10.0.0.0/', '10.0.0.0/33', '10.0.0.1/8', '10.0.0/8', '010.0.0.0/8'],
    ...['10.0.0.0/8/8', '10.0.0.0/-1', '10.0.0.0/8 ', ' 10.0.0.0/8', '10.0.0.0/8\n', '10.0.0.0/+8'],
    ...['::/129', '2001:db8::1/32', 'fe80::1%eth0/128', '[::1]/128', 'example.com/8', '*/0'],
  ])('refuses %j', (text) => {
    expect(parseIpNetwork(text)).toBeUndefined();
  });

  it('reads what formatIpNetwork has written', () => {
    fc.assert(
      fc.property(arbNetwork, (network) => {
        expect(parseIpNetwork(formatIpNetwork(network))).toEqual(network);
      }),
    );
  });

  it('reads IPv6 addresses of every form', () => {
    fc.assert(
      fc.property(fc.ipV6(), (address) => {
        const network = parseIpAddress(address);
        const text = formatIpNetwork(network!).replace('/128', '');
        expect(new URL(`http://[${text}]`).hostname).toBe(new URL(`http://[${address}]`).hostname);
      }),
    );
  });
});

describe('selectOutermost', () => {
  it('returns some of the networks, without overlap, that contain all of them', () => {
    fc.assert(
      fc.property(fc.array(arbNetwork, { maxLength: 12 }), (networks) => {
        const selected = selectOutermost(networks);
        expect(networks).toEqual(expect.arrayContaining([...selected]));
        for (const network of networks)
          expect(selected.filter((outer) => contains(outer, network))).toHaveLength(1);
      }),
    );
  });
});
