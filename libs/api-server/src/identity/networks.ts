import { containsAddress, parseIpAddress, parseIpNetwork } from '@cloudless/api';

/**
 * Explains why a text is not a network of a join token, such as `10.0.0.0/8` or `2001:db8::/32`.
 * Unlike `findNetworkProblem` of `@cloudless/api`: a plain address is refused, and bits after the
 * prefix are allowed.
 * @returns Undefined for a valid network.
 */
export function findJoinNetworkProblem(cidr: string): string | undefined {
  if (cidr.includes('/') && parseIpNetwork(cidr) !== undefined) return undefined;
  return `${JSON.stringify(cidr)} is not a network; use a form such as 10.0.0.0/8 or 2001:db8::/32`;
}

/**
 * Returns true when an address is in one of the networks. An IPv4 address in its IPv6 form
 * (`::ffff:10.0.0.1`) counts as the IPv4 address.
 * @param cidrs - Valid networks. Empty: every address is in.
 */
export function isInNetworks(cidrs: readonly string[], address: string): boolean {
  if (cidrs.length === 0) return true;
  const parsed = parseIpAddress(address);
  if (parsed === undefined) return false;
  return cidrs.some((cidr) => {
    const network = parseIpNetwork(cidr);
    return network !== undefined && containsAddress(network, parsed);
  });
}
