import ipaddr from 'ipaddr.js';
import { isInRange, type AddressRange } from './address-range.js';

/**
 * Kinds of addresses that no endpoint outside the cluster has. Kinds as in `ipaddr.js`; tunnelled
 * and translated addresses are refused, because they stand for another address.
 */
const REFUSED_KINDS: ReadonlyMap<string, string> = new Map([
  ['unspecified', 'stands for every address of a machine'],
  ['broadcast', 'is a broadcast address'],
  ['multicast', 'is a multicast address'],
  ['linkLocal', 'is a link-local address, where clouds serve the credentials of machines'],
  ['loopback', 'is a loopback address, which is another machine on each node'],
  ['reserved', 'is a reserved address'],
  ['ipv4Mapped', 'is an IPv4 address in IPv6 form; write the IPv4 address'],
  ['rfc6145', 'is a translated address'],
  ['rfc6052', 'is a translated address'],
  ['6to4', 'is a tunnelled address'],
  ['teredo', 'is a tunnelled address'],
  ['orchid2', 'is a reserved address'],
  ['droneRemoteIdProtocolEntityTags', 'is a reserved address'],
]);

/** Addresses outside the refused kinds at which clouds serve the credentials of machines. */
const METADATA_ADDRESSES: ReadonlySet<string> = new Set([
  '100.100.100.200',
  '168.63.129.16',
  'fd00:ec2::254',
  'fd20:ce::254',
]);

/**
 * Explains why no proxy connects to an address outside the cluster. Checked when the address is
 * registered and again before each connection, so that a service does not lead to the inside of a
 * node, to the metadata service of a cloud, or back to another service.
 * @param address - An IP address in its usual form: four decimal numbers, or IPv6 without a zone.
 * @param ranges - Ranges of virtual addresses.
 * @returns A part of a sentence that begins with the address; undefined for a permitted address.
 */
export function explainRefusedAddress(
  address: string,
  ranges: readonly AddressRange[],
): string | undefined {
  const isIpv4 = ipaddr.IPv4.isValidFourPartDecimal(address);
  if (!isIpv4 && (!ipaddr.IPv6.isValid(address) || address.includes('%')))
    return `"${address}" is not an IP address`;
  const parsed = isIpv4 ? ipaddr.IPv4.parse(address) : ipaddr.IPv6.parse(address);
  if (parsed instanceof ipaddr.IPv6 && isIpv4Compatible(parsed))
    return `${address} is an IPv4 address in IPv6 form; write the IPv4 address`;
  const kind = REFUSED_KINDS.get(parsed.range());
  if (kind !== undefined) return `${address} ${kind}`;
  if (isIpv4 && address.startsWith('0.')) return `${address} is a reserved address`;
  if (METADATA_ADDRESSES.has(parsed.toString()))
    return `${address} is an address where a cloud serves the credentials of machines`;
  const range = ranges.find((candidate) => isInRange(candidate, address));
  return range === undefined
    ? undefined
    : `${address} is in ${range.text}, the range of virtual addresses`;
}

/** Returns an address in its canonical form, so that equal addresses are equal texts. */
export function toCanonicalAddress(address: string): string {
  return ipaddr.parse(address).toString();
}

/**
 * Returns the IP address in the address of a server, in canonical form.
 * @param server - A URL, or `host:port`, such as `https://10.0.0.5:7443` or `[fd12::5]:9443`.
 * @returns Undefined for a host name, and for a text without a host.
 */
export function findServerAddress(server: string): string | undefined {
  const match = /^(?:[a-z]+:\/\/)?(?:\[([^\]%]+)\]|([^:/[\]]+))(?::\d+)?(?:\/.*)?$/.exec(server);
  const host = match?.[1] ?? match?.[2] ?? '';
  const isAddress = ipaddr.IPv4.isValidFourPartDecimal(host) || ipaddr.IPv6.isValid(host);
  return isAddress ? toCanonicalAddress(host) : undefined;
}

/**
 * Returns true when the address is in `::/96`: deprecated, and routed to the IPv4 address by some
 * systems.
 */
function isIpv4Compatible({ parts }: ipaddr.IPv6): boolean {
  return parts.slice(0, 6).every((part) => part === 0);
}
