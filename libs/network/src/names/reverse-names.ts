import ipaddr from 'ipaddr.js';

const IPV4_SUFFIX = '.in-addr.arpa';
const IPV6_SUFFIX = '.ip6.arpa';

/** Meaning of a name of the reverse tree. */
export type ReverseName =
  | { readonly kind: 'address'; readonly address: string }
  /** The first octets of IPv4 addresses. */
  | { readonly kind: 'prefix'; readonly octets: readonly number[] };

/** Parses a name such as `5.0.96.10.in-addr.arpa`. Undefined: not in the reverse tree. */
export function parseReverseName(name: string): ReverseName | undefined {
  if (name.endsWith(IPV4_SUFFIX)) return parseIpv4(name.slice(0, -IPV4_SUFFIX.length));
  if (name.endsWith(IPV6_SUFFIX)) return parseIpv6(name.slice(0, -IPV6_SUFFIX.length));
  return undefined;
}

function parseIpv4(labels: string): ReverseName | undefined {
  const parts = labels.split('.').reverse();
  if (parts.length > 4 || parts.some((part) => !/^(0|[1-9]\d{0,2})$/.test(part))) return undefined;
  const octets = parts.map(Number);
  if (octets.some((octet) => octet > 255)) return undefined;
  return octets.length === 4
    ? { kind: 'address', address: octets.join('.') }
    : { kind: 'prefix', octets };
}

function parseIpv6(labels: string): ReverseName | undefined {
  const digits = labels.split('.').reverse();
  if (digits.length !== 32 || digits.some((digit) => !/^[\da-f]$/.test(digit))) return undefined;
  const text = digits.join('').replace(/(.{4})(?!$)/g, '$1:');
  return { kind: 'address', address: ipaddr.IPv6.parse(text).toRFC5952String() };
}

/** Returns the name of the reverse tree for the first octets of IPv4 addresses. */
export function reverseNameOf(octets: readonly number[]): string {
  return `${[...octets].reverse().join('.')}${IPV4_SUFFIX}`;
}
