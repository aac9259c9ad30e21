import { isIPv4, isIPv6 } from 'node:net';

/** An IPv4 or IPv6 network. */
export interface IpNetwork {
  readonly family: 4 | 6;
  /** The first address as a number of 32 or 128 bits. */
  readonly first: bigint;
  /** Number of leading bits that all addresses share. */
  readonly prefix: number;
}

const BITS = { 4: 32, 6: 128 } as const;

/**
 * Parses a network in CIDR notation, such as `10.0.0.0/8` or `2001:db8::1/128`.
 * @returns Undefined when the text is no network, or has bits after the prefix.
 */
export function parseIpNetwork(text: string): IpNetwork | undefined {
  const [, address = '', digits] = /^([^/]*)\/(\d{1,3})$/.exec(text) ?? [];
  const host = parseIpAddress(address);
  const prefix = Number(digits);
  if (host === undefined || prefix > BITS[host.family]) return undefined;
  const network = { ...host, prefix };
  return toFirst(network, prefix) === host.first ? network : undefined;
}

/**
 * Parses an address as the network that contains only this address.
 * @returns Undefined when the text is no address, or names an interface: `fe80::1%eth0`.
 */
export function parseIpAddress(text: string): IpNetwork | undefined {
  if (isIPv4(text))
    return { family: 4, first: joinParts(text.split('.'), 10, 8n), prefix: BITS[4] };
  if (!isIPv6(text) || text.includes('%')) return undefined;
  // A URL contains the address in its shortest form, without an IPv4 address in the last bits.
  const [head = '', tail] = new URL(`http://[${text}]`).hostname.slice(1, -1).split('::');
  const [left, right] = [head, tail ?? ''].map((side) =>
    side.split(':').filter((part) => part !== ''),
  );
  const zeros = Array.from({ length: 8 - (left?.length ?? 0) - (right?.length ?? 0) }, () => '0');
  const parts = [...(left ?? []), ...zeros, ...(right ?? [])];
  return { family: 6, first: joinParts(parts, 16, 16n), prefix: BITS[6] };
}

/** Formats a network in CIDR notation, an IPv6 address with all its 8 parts. */
export function formatIpNetwork({ family, first, prefix }: IpNetwork): string {
  const [count, width, radix, separator] = family === 4 ? [4, 8n, 10, '.'] : [8, 16n, 16, ':'];
  const parts = Array.from({ length: count }, (_, index) =>
    BigInt.asUintN(Number(width), first >> (width * BigInt(count - 1 - index))).toString(radix),
  );
  return `${parts.join(separator)}/${prefix}`;
}

/**
 * Returns the networks that no other of these networks contains, without repetitions: the same
 * addresses, each in one network. Two networks either are disjoint, or one contains the other.
 */
export function selectOutermost(networks: readonly IpNetwork[]): readonly IpNetwork[] {
  const kept = new Map<string, IpNetwork>();
  const prefixes = [...new Set(networks.map(({ prefix }) => prefix))].sort((a, b) => a - b);
  for (const network of [...networks].sort((a, b) => a.prefix - b.prefix)) {
    const isContained = prefixes
      .filter((prefix) => prefix <= network.prefix)
      .some((prefix) =>
        kept.has(formatIpNetwork({ ...network, first: toFirst(network, prefix), prefix })),
      );
    if (!isContained) kept.set(formatIpNetwork(network), network);
  }
  return [...kept.values()];
}

/** Returns the first address of the network with this prefix that contains the network. */
function toFirst({ family, first }: IpNetwork, prefix: number): bigint {
  const hostBits = BigInt(BITS[family] - prefix);
  return (first >> hostBits) << hostBits;
}

function joinParts(parts: readonly string[], radix: number, width: bigint): bigint {
  return parts.reduce(
    (number, part) => (number << width) | BigInt(Number.parseInt(part, radix)),
    0n,
  );
}
