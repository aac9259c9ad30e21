import { BlockList, isIPv4, isIPv6 } from 'node:net';
import { CloudlessError } from '@cloudless/base';

const LOOPBACK_ADDRESSES = new BlockList();
LOOPBACK_ADDRESSES.addSubnet('127.0.0.0', 8, 'ipv4');
LOOPBACK_ADDRESSES.addAddress('::1', 'ipv6');

/**
 * Returns true when an address literal is on loopback, so that only this machine can use the
 * address.
 * @param address - IPv4 or IPv6 text without brackets or zone. `::ffff:127.0.0.1` is on loopback. A
 *   name is not an address literal, so the result is false.
 */
export function isLoopbackAddress(address: string): boolean {
  if (isIPv4(address)) return LOOPBACK_ADDRESSES.check(address, 'ipv4');
  return isIPv6(address) && !address.includes('%') && LOOPBACK_ADDRESSES.check(address, 'ipv6');
}

/**
 * Returns true when a host name or address is on loopback: `localhost` in any case, an address in
 * 127.0.0.0/8, `::1` with or without brackets. False for any other name, also for a name that
 * resolves to a loopback address, because its address may change.
 */
export function isLoopbackHost(host: string): boolean {
  return host.toLowerCase() === 'localhost' || isLoopbackAddress(stripBrackets(host));
}

/**
 * Refuses addresses that other machines can reach, because without TLS clients cannot be told
 * apart.
 * @returns The address to bind. `localhost` becomes 127.0.0.1, independently of the resolver.
 * @throws kind `precondition` when the host is not on loopback.
 */
export function requireLoopback(host: string): string {
  if (isLoopbackHost(host))
    return host.toLowerCase() === 'localhost' ? '127.0.0.1' : stripBrackets(host);
  throw new CloudlessError(
    'precondition',
    `refusing to listen on ${host === '' ? 'every address' : host} without TLS; use --tls on or listen on 127.0.0.1`,
  );
}

function stripBrackets(host: string): string {
  const inner = host.startsWith('[') && host.endsWith(']') ? host.slice(1, -1) : undefined;
  return inner !== undefined && isIPv6(inner) ? inner : host;
}
