import {
  findNetworkProblem,
  formatIpNetwork,
  parseIpNetwork,
  type IpNetwork,
} from '@cloudless/api';
import { CloudlessError } from '@cloudless/base';
import type { EgressPortRange, EgressRule } from '@cloudless/runtime';
import { selectOutermost } from './select-outermost.js';

/** Name of the table, the only table that this library adds to the network of a container. */
const TABLE = 'inet cloudless_egress';
const PROTOCOLS = ['tcp', 'udp'] as const;
const DNS_PORTS: readonly EgressPortRange[] = PROTOCOLS.map((protocol) => ({
  protocol,
  first: 53,
  last: 53,
}));

/** Networks, and the conditions of their ports as the packet filter writes them. */
interface Group {
  readonly networks: IpNetwork[];
  /** Empty: every port of every protocol. */
  readonly ports: readonly string[];
}

/**
 * Returns the commands by which `nft` replaces the packet filter of a container. `nft -f` applies
 * them together or not at all. The text contains no part of the rules as it was written: networks
 * and ports are parsed and formatted.
 *
 * The filter accepts, in this order:
 * - packets within the network of the container itself; they make no known connection, because a
 *   program could give them any source address (IPV6_FREEBIND) and so open a way out,
 * - packets of known connections: answers on connections that others opened, and connections that
 *   earlier rules allowed,
 * - messages by which the kernel finds its neighbours and joins multicast groups in IPv6,
 * - packets to port 53 of the DNS servers, and to the networks and ports of the rules.
 *
 * A reset answers every other TCP packet, so that a connection fails at once. An ICMPv6 message would
 * arrive while the kernel still opens the connection, which then fails 1 s later.
 * @param dnsServers - IP addresses.
 * @throws kind `invalid`, naming the field, for a rule that is not valid.
 * @see nft(8)
 */
export function toFilterText(
  rules: readonly EgressRule[],
  dnsServers: readonly string[] = [],
): string {
  const groups = groupByPorts(rules, dnsServers);
  const sets: string[] = [];
  const accepted: string[] = [];
  for (const [index, { networks, ports }] of groups.entries()) {
    for (const family of [4, 6] as const) {
      const elements = selectOutermost(networks.filter((each) => each.family === family));
      if (elements.length === 0) continue;
      const name = `networks_${index}_ipv${family}`;
      const texts = elements.map(formatIpNetwork).join(', ');
      sets.push(
        `  set ${name} { type ipv${family}_addr; flags interval; elements = { ${texts} } }`,
      );
      const destination = `${family === 4 ? 'ip' : 'ip6'} daddr @${name}`;
      const conditions = ports.length === 0 ? [''] : ports.map((each) => ` ${each}`);
      accepted.push(...conditions.map((each) => `    ${destination}${each} accept`));
    }
  }
  return `add table ${TABLE}
delete table ${TABLE}
table ${TABLE} {
${sets.map((each) => `${each}\n`).join('')}  chain loopback_out {
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
${accepted.map((each) => `${each}\n`).join('')}    counter
    meta l4proto tcp reject with tcp reset
    reject with icmpx type admin-prohibited
  }
}
`;
}

/**
 * Validates rules.
 * @throws kind `invalid`, naming the field.
 */
export function checkEgressRules(rules: readonly EgressRule[]): void {
  groupByPorts(rules, []);
}

/** Groups the networks of rules with the same ports, so that each group needs one set. */
function groupByPorts(
  rules: readonly EgressRule[],
  dnsServers: readonly string[],
): readonly Group[] {
  const groups = new Map<string, Group>();
  const add = (network: IpNetwork, ports: readonly string[]): void => {
    const key = ports.join(' ');
    const group = groups.get(key) ?? { networks: [], ports };
    groups.set(key, group);
    group.networks.push(network);
  };
  for (const server of dnsServers.map(parseIpNetwork))
    if (server !== undefined) add(server, formatPorts(DNS_PORTS));
  for (const [index, { network: text, ports }] of rules.entries()) {
    const field = `network.egress[${index}]`;
    const network = parseIpNetwork(text);
    const problem = findNetworkProblem(text);
    if (network === undefined || problem !== undefined)
      throw new CloudlessError('invalid', `${field}.network: ${problem ?? 'is not a network'}`);
    if (ports !== undefined) checkPorts(`${field}.ports`, ports);
    add(network, ports === undefined ? [] : formatPorts(ports));
  }
  return [...groups.values()];
}

function checkPorts(field: string, ports: readonly EgressPortRange[]): void {
  const refuse = (message: string): never => {
    throw new CloudlessError('invalid', `${field}: ${message}`);
  };
  if (ports.length === 0) refuse('is empty; omit the field for every port');
  for (const { protocol, first, last } of ports) {
    if (!PROTOCOLS.includes(protocol)) refuse(`${JSON.stringify(protocol)} is not tcp or udp`);
    if (![first, last].every((port) => Number.isInteger(port) && port >= 1 && port <= 65_535))
      refuse('ports must be whole numbers from 1 to 65535');
    if (first > last) refuse(`${first} is above ${last}`);
  }
}

/** Returns one condition for each protocol with ports: `tcp dport { 80, 8000-8100 }`. */
function formatPorts(ports: readonly EgressPortRange[]): readonly string[] {
  return PROTOCOLS.flatMap((protocol) => {
    const ranges = mergeRanges(ports.filter((each) => each.protocol === protocol));
    if (ranges.length === 0) return [];
    const texts = ranges.map(({ first, last }) => (first === last ? first : `${first}-${last}`));
    return [`${protocol} dport { ${texts.join(', ')} }`];
  });
}

/** Joins ranges that overlap, because the packet filter refuses such ranges in one set. */
function mergeRanges(
  ranges: readonly EgressPortRange[],
): readonly Pick<EgressPortRange, 'first' | 'last'>[] {
  const merged: { first: number; last: number }[] = [];
  for (const { first, last } of [...ranges].sort((a, b) => a.first - b.first)) {
    const previous = merged.at(-1);
    if (previous !== undefined && first <= previous.last + 1)
      previous.last = Math.max(previous.last, last);
    else merged.push({ first, last });
  }
  return merged;
}
