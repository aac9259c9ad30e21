import { isIPv4, isIPv6 } from 'node:net';
import { unmapIpv4 } from '@cloudless/base';
import { isLoopbackAddress } from '@cloudless/identity';

/** One key for all loopback addresses, because a client can choose any of them. */
const LOOPBACK = 'loopback';
/** Groups in the /64 prefix of an IPv6 address. One machine may use all addresses of its /64. */
const NETWORK_GROUPS = 4;
/** Groups in an IPv6 address. */
const GROUPS = 8;

/**
 * Returns the key that the limit of streams for one address uses: an IPv4 address, the /64 of an
 * IPv6 address, or `loopback`.
 * @param address - Remote address of a socket. Text that is no address is returned unchanged.
 */
export function toPeerKey(address: string): string {
  const plain = unmapIpv4(address);
  if (isLoopbackAddress(plain)) return LOOPBACK;
  if (isIPv4(plain) || !isIPv6(plain)) return plain;
  return `${expandIPv6(plain).slice(0, NETWORK_GROUPS).join(':')}::/64`;
}

/** Returns all eight groups of an IPv6 address, without the zone; `::` becomes groups of 0. */
function expandIPv6(address: string): readonly string[] {
  const [head = '', tail] = (address.split('%', 1)[0] ?? '').split('::');
  const before = splitGroups(head);
  const after = tail === undefined ? [] : splitGroups(tail);
  return [
    ...before,
    ...Array.from({ length: GROUPS - before.length - after.length }, () => '0'),
    ...after,
  ].map((group) => group.replace(/^0+(?=.)/, '').toLowerCase());
}

function splitGroups(text: string): readonly string[] {
  return text === '' ? [] : text.split(':');
}
