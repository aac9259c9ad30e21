import { existsSync } from 'node:fs';
import { spawnSync } from 'node:child_process';
import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { errorKindOf } from '@cloudless/base';
import type { EgressRule } from '@cloudless/runtime';
import { arbRules } from '../testing/networks.js';
import { FILTER_SKIP_REASON } from '../testing/packet-filter.js';
import { toFilterText } from './filter-text.js';

/** The lines of a filter that depend on its rules, without indentation. */
function linesOf(rules: readonly EgressRule[], dnsServers: readonly string[] = []): string[] {
  return toFilterText(rules, dnsServers)
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line.startsWith('set ') || line.includes('daddr'));
}

const tcp = (first: number, last = first) => ({ protocol: 'tcp', first, last }) as const;
const udp = (first: number, last = first) => ({ protocol: 'udp', first, last }) as const;

describe('toFilterText', () => {
  it('refuses every packet that begins a connection when there are no rules', () => {
    expect(toFilterText([])).toBe(`add table inet cloudless_egress
delete table inet cloudless_egress
table inet cloudless_egress {
  chain loopback_out {
    type filter hook output priority raw; oif lo notrack
  }
  chain loopback_in {
    type filter hook prerouting priority raw; iif lo notrack
  }
  chain output {
    type filter hook output priority 0; policy drop;
    oif lo accept
    ct state established,related accept
    icmpv6 type { nd-router-solicit, nd-neighbor-solicit, nd-neighbor-advert } accept
    icmpv6 type { mld-listener-report, mld-listener-done, mld2-listener-report } accept
    counter
    meta l4proto tcp reject with tcp reset
    reject with icmpx type admin-prohibited
  }
}
`);
  });

  it.each<{ name: string; rules: EgressRule[]; dns?: string[]; expected: string[] }>([
    {
      name: 'a network with every port',
      rules: [{ network: '10.0.0.0/8' }],
      expected: [
        'set networks_0_ipv4 { type ipv4_addr; flags interval; elements = { 10.0.0.0/8 } }',
        'ip daddr @networks_0_ipv4 accept',
      ],
    },
    {
      name: 'ports of both protocols, joined where they overlap',
      rules: [
        {
          network: '2001:db8::/32',
          ports: [udp(53), tcp(8050, 8200), tcp(443), tcp(8000, 8100), tcp(8201)],
        },
      ],
      expected: [
        'set networks_0_ipv6 { type ipv6_addr; flags interval; elements = { 2001:db8::/32 } }',
        'ip6 daddr @networks_0_ipv6 tcp dport { 443, 8000-8201 } accept',
        'ip6 daddr @networks_0_ipv6 udp dport { 53 } accept',
      ],
    },
    {
      name: 'one set for the networks with the same ports, without a network in another one',
      rules: [
        { network: '192.0.2.7/32', ports: [tcp(80), tcp(443)] },
        { network: '2001:db8::1/128', ports: [tcp(443), tcp(80), tcp(80)] },
        { network: '192.0.2.0/24', ports: [tcp(80), tcp(443)] },
        { network: '192.0.2.8/32', ports: [tcp(80)] },
      ],
      expected: [
        'set networks_0_ipv4 { type ipv4_addr; flags interval; elements = { 192.0.2.0/24 } }',
        'set networks_0_ipv6 { type ipv6_addr; flags interval; elements = { 2001:db8::1/128 } }',
        'set networks_1_ipv4 { type ipv4_addr; flags interval; elements = { 192.0.2.8/32 } }',
        'ip daddr @networks_0_ipv4 tcp dport { 80, 443 } accept',
        'ip6 daddr @networks_0_ipv6 tcp dport { 80, 443 } accept',
        'ip daddr @networks_1_ipv4 tcp dport { 80 } accept',
      ],
    },
    {
      name: 'DNS servers, without text that is no address',
      rules: [],
      dns: ['192.0.2.53', '2001:db8::53', 'fe80::1%eth0', 'x; accept'],
      expected: [
        'set networks_0_ipv4 { type ipv4_addr; flags interval; elements = { 192.0.2.53/32 } }',
        'set networks_0_ipv6 { type ipv6_addr; flags interval; elements = { 2001:db8::53/128 } }',
        ...['tcp', 'udp'].map((name) => `ip daddr @networks_0_ipv4 ${name} dport { 53 } accept`),
        ...['tcp', 'udp'].map((name) => `ip6 daddr @networks_0_ipv6 ${name} dport { 53 } accept`),
      ],
    },
  ])('writes $name', ({ rules, dns = [], expected }) => {
    expect(linesOf(rules, dns)).toEqual(expected);
  });

  it.each<{ rule: EgressRule; expectedText: string }>([
    {
      rule: { network: '10.0.0.0/8; flush ruleset' },
      expectedText: 'network.egress[1].network: "10.0.0.0/8; flush ruleset" ',
    },
    {
      rule: { network: '10.0.0.1/8' },
      expectedText: 'network.egress[1].network: 10.0.0.1/8 has host bits: use 10.0.0.0/8',
    },
    {
      rule: { network: '10.0.0.0/8', ports: [] },
      expectedText: 'network.egress[1].ports: is empty; omit the field for every port',
    },
    {
      rule: { network: '10.0.0.0/8', ports: [tcp(0)] },
      expectedText: 'network.egress[1].ports: ports must be whole numbers from 1 to 65535',
    },
    {
      rule: { network: '10.0.0.0/8', ports: [udp(1, 65_536)] },
      expectedText: 'network.egress[1].ports: ports must be whole numbers from 1 to 65535',
    },
    {
      rule: { network: '10.0.0.0/8', ports: [tcp(443, 80)] },
      expectedText: 'network.egress[1].ports: 443 is above 80',
    },
    {
      rule: { network: '10.0.0.0/8', ports: [{ protocol: 'sctp' as never, first: 1, last: 1 }] },
      expectedText: 'network.egress[1].ports: "sctp" is not tcp or udp',
    },
  ])('refuses a rule with the message: $expectedText', ({ rule, expectedText }) => {
    expect(() => toFilterText([{ network: '::/0' }, rule])).toThrow(
      expect.objectContaining({ kind: 'invalid', message: expect.stringContaining(expectedText) }),
    );
  });

  it('contains only networks and ports of any text that it does not refuse', () => {
    const texts = fc.oneof(
      fc.string(),
      fc.constantFrom('10.0.0.0/8', '::/0').chain((text) => fc.string().map((rest) => text + rest)),
    );
    fc.assert(
      fc.property(texts, texts, (network, server) => {
        try {
          for (const line of linesOf([{ network }], [server]))
            expect(line).toMatch(
              /^(set networks_\d+_ipv[46] \{ type ipv[46]_addr; flags interval; elements = \{ [0-9a-f.:/, ]+ \} \}|ip6? daddr @networks_\d+_ipv[46]( (tcp|udp) dport \{ 53 \})? accept)$/,
            );
        } catch (reason) {
          expect(errorKindOf(reason)).toBe('invalid');
        }
      }),
    );
  });
});

const itFilters = FILTER_SKIP_REASON === undefined ? it : it.skip;
itFilters(
  `the kernel accepts every filter${FILTER_SKIP_REASON === undefined ? '' : ` (${FILTER_SKIP_REASON})`}`,
  () => {
    // One process checks many filters, of which each replaces the filter before.
    const many = fc.array(arbRules, { minLength: 20, maxLength: 20 });
    fc.assert(
      fc.property(many, (all) => {
        const input = all.map((rules) => toFilterText(rules, ['192.0.2.53'])).join('');
        const { stderr, status } = spawnSync('unshare', ['--net', 'nft', '-f', '-'], {
          input,
          encoding: 'utf8',
        });
        expect({ stderr, status }).toEqual({ stderr: '', status: 0 });
      }),
      { numRuns: 5 },
    );
  },
);

/** Sends to an address that no rule allows, before and after a packet to itself with that sender. */
const FORGER = `
import errno, socket
OWN, FOREIGN = ('fd00::2', 4000), ('fd00::1', 5000)
IPV6_FREEBIND = 78
def create(address=None):
    made = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    if address == FOREIGN: made.setsockopt(socket.IPPROTO_IPV6, IPV6_FREEBIND, 1)
    if address: made.bind(address)
    return made
own = create(OWN)
def attempt():
    try: return own.sendto(b'out', FOREIGN)
    except OSError as error: return errno.errorcode[error.errno]
first = attempt()
create(FOREIGN).sendto(b'forged', OWN)
print(first, attempt(), own.recv(10).decode())
`;
const PYTHON = '/usr/bin/python3';
const forgerSkipReason = FILTER_SKIP_REASON ?? (existsSync(PYTHON) ? undefined : `no ${PYTHON}`);
(forgerSkipReason === undefined ? it : it.skip)(
  `a packet with a forged sender opens no way out${forgerSkipReason === undefined ? '' : ` (${forgerSkipReason})`}`,
  () => {
    const commands = [
      'ip link set lo up',
      'ip link add veth0 type veth peer name veth1',
      'ip addr add fd00::2/64 dev veth0 nodad',
      'ip link set veth0 up && ip link set veth1 up',
      'echo "$FILTER" | nft -f -',
      `exec setpriv --reuid 65534 --clear-groups --bounding-set=-all ${PYTHON} -c "$FORGER"`,
    ];
    const { stdout, stderr } = spawnSync('unshare', ['--net', 'sh', '-c', commands.join(' && ')], {
      encoding: 'utf8',
      env: { ...process.env, FILTER: toFilterText([]), FORGER },
    });
    expect({ stdout, stderr }).toEqual({ stdout: 'EPERM EPERM forged\n', stderr: '' });
  },
);
