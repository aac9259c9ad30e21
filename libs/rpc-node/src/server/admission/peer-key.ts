import { isIPv4, isIPv6 } from 'node:net';
import { isLoopbackAddress } from '@cloudless/identity';

/** One key for all loopback addresses, because a client can choose any of them. */
const LOOPBACK = 'loopback';
/** Groups of the /64 prefix of an IPv6 address. One machine may use all addresses of its /64. */
const NETWORK_GROUPS = 4;
const GROUPS = 8;

/**
 * Returns the key under which the limit for one address counts: an IPv4 address, the /64 of an IPv6
 * address, or `loopback`.
 * @param address - As a socket reports it. Other text is returned as it is.
 */
export function toPeerKey(address: string): string {
  const plain = unmapIPv4(address);
  if (isLoopbackAddress(plain)) return LOOPBACK;
  if (isIPv4(plain) || !isIPv6(plain)) return plain;
  return `${expandIPv6(plain).slice(0, NETWORK_GROUPS).join(':')}::/64`;
}

/** Returns the IPv4 address of an IPv4-mapped IPv6 address (a dual-stack socket reports those). */
function unmapIPv4(address: string): string {
  const [, mapped = ''] = /^::ffff:([0-9.]+)$/i.exec(address) ?? [];
  return isIPv4(mapped) ? mapped : address;
}

/** All eight groups of an IPv6 address, without zone, with the groups that `::` abbreviates. */
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
