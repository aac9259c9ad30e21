import { BlockList, isIPv4, isIPv6 } from 'node:net';
import { CloudlessError } from '@cloudless/base';

const loopback = new BlockList();
loopback.addSubnet('127.0.0.0', 8, 'ipv4');
loopback.addAddress('::1', 'ipv6');

/**
 * Says whether an address literal can only reach, or only come from, this machine.
 * @param address - IPv4 or IPv6 text without brackets or zone; `::ffff:127.0.0.1` counts, names do
 *   not.
 */
export function isLoopbackAddress(address: string): boolean {
  if (isIPv4(address)) return loopback.check(address, 'ipv4');
  return isIPv6(address) && !address.includes('%') && loopback.check(address, 'ipv6');
}

/**
 * Says whether a host, as people write it, is this machine and nothing else: `localhost` in any
 * case, an address in 127.0.0.0/8, `::1` with or without brackets. Every other name is refused,
 * also one that resolves to such an address: what it resolves to is for others to decide.
 */
export function isLoopbackHost(host: string): boolean {
  return host.toLowerCase() === 'localhost' || isLoopbackAddress(withoutBrackets(host));
}

/**
 * Refuses to listen where others could connect, as there are no identities to tell them apart.
 * @returns The address to bind. `localhost` becomes 127.0.0.1, so that no resolver has a say in it.
 * @throws CloudlessError `precondition` when the host is not a loopback one.
 */
export function requireLoopback(host: string): string {
  if (isLoopbackHost(host))
    return host.toLowerCase() === 'localhost' ? '127.0.0.1' : withoutBrackets(host);
  throw new CloudlessError(
    'precondition',
    `refusing to listen on ${host === '' ? 'every address' : host} without TLS; identities are not available in this version, ` +
      'so only 127.0.0.1, ::1 or localhost are accepted',
  );
}

function withoutBrackets(host: string): string {
  const inner = host.startsWith('[') && host.endsWith(']') ? host.slice(1, -1) : undefined;
  return inner !== undefined && isIPv6(inner) ? inner : host;
}
