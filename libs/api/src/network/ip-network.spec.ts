import { BlockList } from 'node:net';
import fc from 'fast-check';
import {
  containsNetwork,
  findNetworkProblem,
  formatIpNetwork,
  parseIpAddress,
  parseIpNetwork,
} from '../index.js';

const ipv4 = fc.ipV4();
const ipv6 = fc.ipV6();
/** A network as text and its parts; the bits after the prefix are arbitrary. */
const networks = fc.oneof(
  fc.record({ address: ipv4, prefixLength: fc.integer({ min: 0, max: 32 }) }),
  fc.record({ address: ipv6, prefixLength: fc.integer({ min: 0, max: 128 }) }),
);

describe('networks', () => {
  it('contain the addresses that Node.js finds in them', () => {
    fc.assert(
      fc.property(networks, fc.oneof(ipv4, ipv6), (given, other) => {
        const network = parseIpNetwork(`${given.address}/${given.prefixLength}`);
        for (const address of [given.address, other]) {
          // Node.js compares an IPv4-mapped address with networks of both families.
          fc.pre(!/^(0*:)+:?(0*:)*ffff:/i.test(address));
          const list = new BlockList();
          const familyOf = (text: string) => (text.includes(':') ? 'ipv6' : 'ipv4');
          list.addSubnet(given.address, given.prefixLength, familyOf(given.address));
          const inner = parseIpNetwork(address);
          const isIn =
            network !== undefined && inner !== undefined && containsNetwork(network, inner);
          expect(isIn).toBe(
            familyOf(address) === familyOf(given.address) && list.check(address, familyOf(address)),
          );
        }
      }),
    );
  });

  it('are the same after they were formatted, and then have no problem', () => {
    fc.assert(
      fc.property(networks, ({ address, prefixLength }) => {
        const network = parseIpNetwork(`${address}/${prefixLength}`);
        fc.pre(network !== undefined);
        const text = formatIpNetwork(network);
        expect(parseIpNetwork(text)).toEqual(network);
        expect(findNetworkProblem(text)).toBeUndefined();
      }),
    );
  });

  it.each([
    ['2001:db8:0:0:1:0:0:1', '2001:db8::1:0:0:1/128'],
    ['0:0:1::', '0:0:1::/128'],
    ['::/0', '::/0'],
    ['::1', '::1/128'],
    ['FE80::ABCD:0/112', 'fe80::abcd:0/112'],
    ['1:0:2:3:4:5:6:7', '1:0:2:3:4:5:6:7/128'],
    ['10:0:0:20::', '10:0:0:20::/128'],
    ['64:ff9b::192.0.2.33', '64:ff9b::c000:221/128'],
    ['::ffff:10.1.2.3/104', '10.0.0.0/8'],
    ['10.1.2.3', '10.1.2.3/32'],
  ])('%s is written %s', (text, expected) => {
    const network = parseIpNetwork(text);
    expect(network && formatIpNetwork(network)).toBe(expected);
  });

  it('a zone is no part of an address', () => {
    expect(parseIpAddress('fe80::1%eth0')).toEqual(parseIpAddress('fe80::1'));
  });

  it.each([
    ['10.0.0.1/8', '10.0.0.1/8 has host bits: use 10.0.0.0/8'],
    ['2001:db8::1/32', '2001:db8::1/32 has host bits: use 2001:db8::/32'],
    [
      '10.0.0.0/33',
      expect.stringMatching(/^"10.0.0.0\/33" does not have a prefix length from 0 to 32; use /),
    ],
    ['::/129', expect.stringMatching(/^"::\/129" does not have a prefix length from 0 to 128; /)],
    ['10.0.0.0/08', expect.stringContaining('prefix length from 0 to 32')],
    ['::ffff:10.0.0.0/104', '"::ffff:10.0.0.0/104" is an IPv4-mapped form: use 10.0.0.0/8'],
    ['::ffff:10.0.0.1', '"::ffff:10.0.0.1" is an IPv4-mapped form: use 10.0.0.1/32'],
    ['fe80::1%eth0', expect.stringContaining('has a zone, which networks do not have; use ')],
    ...[
      '',
      '/8',
      '10.0.0/8',
      '010.0.0.0/8',
      'db.example',
      '10.0.0.0/',
      '10.0.0.0/8/8',
      ' 10.0.0.0/8',
    ].map((text) => [
      text,
      expect.stringContaining(' is not a network or an address; use a form '),
    ]),
  ])('%j is refused', (text, problem) => {
    expect(findNetworkProblem(text as string)).toEqual(problem);
  });

  it.each(['10.0.0.0/8', '0.0.0.0/0', '::/0', '2001:db8::/32', '192.0.2.7', '192.0.2.7/32', '::1'])(
    '%s is accepted',
    (text) => {
      expect(findNetworkProblem(text)).toBeUndefined();
    },
  );
});
