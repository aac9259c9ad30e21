import { isIPv4, isIPv6 } from 'node:net';
import { unmapIpv4 } from '@cloudless/base';

const SIGNATURE = Buffer.from('0d0a0d0a000d0a515549540a', 'hex');
const VERSION_AND_PROXY = 0x21;
const VERSION_AND_LOCAL = 0x20;
const TCP_OVER_IPV4 = 0x11;
const TCP_OVER_IPV6 = 0x21;

/** An IP address and a port. */
export interface SocketAddress {
  readonly address: string;
  readonly port: number;
}

/** Returns `<address>:<port>`, with brackets around IPv6. */
export function formatAddress({ address, port }: SocketAddress): string {
  return address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`;
}

/** Reads what {@link formatAddress} returns; undefined for any other text. */
export function parseAddress(text: string): SocketAddress | undefined {
  const match = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(text);
  const address = match?.[1] ?? match?.[2];
  const port = Number(match?.[3]);
  if (address === undefined || port > 65_535) return undefined;
  return isIPv4(address) || isIPv6(address) ? { address, port } : undefined;
}

/**
 * Returns the header that tells an endpoint the address of its client. Addresses of different
 * families, or texts that are no addresses, give a header without addresses.
 * @see https://www.haproxy.org/download/2.9/doc/proxy-protocol.txt, section 2.2
 */
export function encodeProxyHeader(
  client: SocketAddress | undefined,
  virtual: SocketAddress | undefined,
): Buffer {
  const source = client === undefined ? undefined : toBytes(client.address);
  const target = virtual === undefined ? undefined : toBytes(virtual.address);
  if (
    client === undefined ||
    virtual === undefined ||
    source === undefined ||
    target?.length !== source.length
  )
    return Buffer.concat([SIGNATURE, Buffer.from([VERSION_AND_LOCAL, 0, 0, 0])]);
  const ports = Buffer.allocUnsafe(4);
  ports.writeUInt16BE(client.port, 0);
  ports.writeUInt16BE(virtual.port, 2);
  const addresses = Buffer.concat([source, target, ports]);
  const family = source.length === 4 ? TCP_OVER_IPV4 : TCP_OVER_IPV6;
  return Buffer.concat([
    SIGNATURE,
    Buffer.from([VERSION_AND_PROXY, family, addresses.length >> 8, addresses.length & 0xff]),
    addresses,
  ]);
}

/** Returns the bytes of an address; an IPv4 address within IPv6 counts as IPv4. */
function toBytes(address: string): Buffer | undefined {
  const unmapped = unmapIpv4(address);
  if (isIPv4(unmapped)) return Buffer.from(unmapped.split('.').map(Number));
  if (!isIPv6(address)) return undefined;
  const [head = '', tail] = (address.split('%')[0] ?? '').split('::');
  const left = groupsOf(head);
  const right = groupsOf(tail ?? '');
  const zeros = new Array<number>(8 - left.length - right.length).fill(0);
  const bytes = Buffer.alloc(16);
  [...left, ...zeros, ...right].forEach((group, index) => bytes.writeUInt16BE(group, index * 2));
  return bytes;
}

function groupsOf(text: string): number[] {
  if (text === '') return [];
  return text.split(':').flatMap((group) => {
    if (!group.includes('.')) return [parseInt(group, 16)];
    const [a = 0, b = 0, c = 0, d = 0] = group.split('.').map(Number);
    return [(a << 8) | b, (c << 8) | d];
  });
}
