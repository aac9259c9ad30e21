import { BlockList, isIPv4, isIPv6 } from 'node:net';

/**
 * Explains why a text is not a network such as `10.0.0.0/8` or `2001:db8::/32`.
 * @returns Undefined for a valid network.
 */
export function findNetworkProblem(cidr: string): string | undefined {
  const [, address = '', prefix = ''] = /^([0-9A-Fa-f:.]+)\/([0-9]{1,3})$/.exec(cidr) ?? [];
  const maxPrefix = isIPv4(address) ? 32 : isIPv6(address) ? 128 : -1;
  if (Number(prefix) <= maxPrefix && String(Number(prefix)) === prefix) return undefined;
  return `${JSON.stringify(cidr)} is not a network; use a form such as 10.0.0.0/8 or 2001:db8::/32`;
}

/**
 * Returns true when an address is in one of the networks. An IPv4 address in its IPv6 form
 * (`::ffff:10.0.0.1`) counts as the IPv4 address.
 * @param cidrs - Valid networks. Empty: every address is in.
 */
export function isInNetworks(cidrs: readonly string[], address: string): boolean {
  if (cidrs.length === 0) return true;
  const mapped = /^::ffff:([0-9.]+)$/i.exec(address)?.[1] ?? address;
  // A zone (`fe80::1%eth0`) names an interface of this machine and no part of the address.
  const plain = mapped.replace(/%.*$/, '');
  const family = isIPv4(plain) ? 'ipv4' : isIPv6(plain) ? 'ipv6' : undefined;
  if (family === undefined) return false;
  const list = new BlockList();
  for (const cidr of cidrs) {
    const [network = '', prefix = ''] = cidr.split('/');
    if (findNetworkProblem(cidr) === undefined)
      list.addSubnet(network, Number(prefix), isIPv4(network) ? 'ipv4' : 'ipv6');
  }
  return list.check(plain, family);
}
