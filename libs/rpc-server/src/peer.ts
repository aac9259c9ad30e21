import { isIPv4, isIPv6 } from 'node:net';
import { isLoopbackAddress } from '@cloudless/identity';

/** All loopback addresses together, because a client can choose any of them. */
const LOOPBACK = 'loopback';
/**
 * Groups of an IPv6 address that name a network (/64), all addresses of which one machine may use.
 */
const NETWORK_GROUPS = 4;
const GROUPS = 8;

/**
 * The key of the limit that an address counts against: an IPv4 address, the /64 of an IPv6 address,
 * or `loopback`.
 * @param address - As a socket reports it. Other text is its own key.
 */
export function peerOf(address: string): string {
  const plain = withoutMapping(address);
  if (isLoopbackAddress(plain)) return LOOPBACK;
  if (isIPv4(plain) || !isIPv6(plain)) return plain;
  return `${expanded(plain).slice(0, NETWORK_GROUPS).join(':')}::/64`;
}

/** The IPv4 address in an IPv6 one that maps it, as a socket for both has it. */
function withoutMapping(address: string): string {
  const [, mapped = ''] = /^::ffff:([0-9.]+)$/i.exec(address) ?? [];
  return isIPv4(mapped) ? mapped : address;
}

/** The groups of an IPv6 address without zone, with those that `::` stands for. */
function expanded(address: string): readonly string[] {
  const [head = '', tail] = (address.split('%', 1)[0] ?? '').split('::');
  const before = groupsOf(head);
  const after = tail === undefined ? [] : groupsOf(tail);
  return [
    ...before,
    ...Array.from({ length: GROUPS - before.length - after.length }, () => '0'),
    ...after,
  ].map((group) => group.replace(/^0+(?=.)/, '').toLowerCase());
}

function groupsOf(text: string): readonly string[] {
  return text === '' ? [] : text.split(':');
}
