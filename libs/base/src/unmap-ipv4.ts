/**
 * Returns the IPv4 address of an IPv4-mapped IPv6 address, which sockets of both families report;
 * any other text as it is.
 * @param address - Remote address of a socket, such as `::ffff:192.0.2.1`.
 */
export function unmapIpv4(address: string): string {
  return address.replace(/^::ffff:(?=\d{1,3}(?:\.\d{1,3}){3}$)/i, '');
}
