import { isIP } from 'node:net';
import ipaddr from 'ipaddr.js';

/** An IPv4 or IPv6 address. */
export interface IpAddress {
  readonly family: 4 | 6;
  /** The bits of the address as a number: 32 bits of IPv4, 128 bits of IPv6. */
  readonly bits: bigint;
}

/** All addresses that begin with the same bits. */
export interface IpNetwork extends IpAddress {
  /** Number of the bits that the addresses share: 0 to 32 with IPv4, 0 to 128 with IPv6. */
  readonly prefixLength: number;
}

/** Length of an address, bits. */
const WIDTH = { 4: 32, 6: 128 } as const;
/** Length of the prefix of the IPv4-mapped IPv6 addresses, `::ffff:0:0/96`. */
const MAPPED_PREFIX_LENGTH = 96;

/**
 * Parses an address. An IPv4-mapped IPv6 address (`::ffff:10.0.0.1`) is the IPv4 address. A zone
 * (`fe80::1%eth0`) names an interface of a machine and is no part of the address.
 * @returns Undefined when `text` is no address.
 */
export function parseIpAddress(text: string): IpAddress | undefined {
  if (isIP(text) === 0) return undefined; // `ipaddr` also reads `0x7f.1` and `010.0.0.1`
  const address = ipaddr.process(text.replace(/%.*$/, ''));
  return { family: address.kind() === 'ipv4' ? 4 : 6, bits: toBits(address.toByteArray()) };
}

/**
 * Parses a network in CIDR notation, such as `10.0.0.0/8` or `2001:db8::/32`. An address is the
 * network of this address alone. Bits after the prefix are removed.
 * @returns Undefined when `text` is no network.
 */
export function parseIpNetwork(text: string): IpNetwork | undefined {
  const [, addressText = '', prefixText] =
    /^([0-9A-Fa-f:.]+)(?:\/(0|[1-9]\d{0,2}))?$/.exec(text) ?? [];
  const address = parseIpAddress(addressText);
  if (address === undefined) return undefined;
  const isMapped = address.family === 4 && addressText.includes(':');
  const width = WIDTH[address.family];
  const prefixLength =
    prefixText === undefined ? width : Number(prefixText) - (isMapped ? MAPPED_PREFIX_LENGTH : 0);
  if (prefixLength < 0 || prefixLength > width) return undefined;
  const hostBits = BigInt(width - prefixLength);
  return { family: address.family, bits: (address.bits >> hostBits) << hostBits, prefixLength };
}

/** Formats a network in CIDR notation, IPv6 as in RFC 5952: `10.0.0.0/8`, `2001:db8::/32`. */
export function formatIpNetwork({ family, bits, prefixLength }: IpNetwork): string {
  const address =
    family === 4
      ? toBytes(bits, 4).join('.')
      : new ipaddr.IPv6(toBytes(bits, 16)).toRFC5952String();
  return `${address}/${prefixLength}`;
}

/** Returns true when every address of `inner` is in `outer`. */
export function containsNetwork(outer: IpNetwork, inner: IpNetwork): boolean {
  return outer.prefixLength <= inner.prefixLength && containsAddress(outer, inner);
}

/** Returns true when an address is in a network of the same family. */
export function containsAddress(network: IpNetwork, { family, bits }: IpAddress): boolean {
  if (network.family !== family) return false;
  const hostBits = BigInt(WIDTH[family] - network.prefixLength);
  return bits >> hostBits === network.bits >> hostBits;
}

/**
 * Explains why a text is not a network or address to which connections lead: unlike
 * {@link parseIpNetwork}, refuses bits after the prefix and IPv4-mapped addresses, which never
 * appear in packets.
 * @returns Undefined for a valid network or address.
 */
export function findNetworkProblem(text: string): string | undefined {
  const network = parseIpNetwork(text);
  const shown = JSON.stringify(text);
  if (network === undefined) {
    const reason = text.includes('%')
      ? 'has a zone, which networks do not have'
      : explainPrefix(text);
    return `${shown} ${reason}; use a form such as 10.0.0.0/8, 2001:db8::/32 or 192.0.2.7`;
  }
  const [address = ''] = text.split('/');
  if (network.family === 4 && address.includes(':'))
    return `${shown} is an IPv4-mapped form: use ${formatIpNetwork(network)}`;
  if (parseIpAddress(address)?.bits !== network.bits)
    return `${text} has host bits: use ${formatIpNetwork(network)}`;
  return undefined;
}

/** Explains why a text is no network. */
function explainPrefix(text: string): string {
  const [addressText = '', prefixText = '', ...rest] = text.split('/');
  const address = parseIpAddress(addressText);
  const isNumber = rest.length === 0 && /^\d+$/.test(prefixText);
  if (address === undefined || !isNumber) return 'is not a network or an address';
  const width = WIDTH[addressText.includes(':') ? 6 : 4];
  return `does not have a prefix length from 0 to ${width}`;
}

function toBits(bytes: readonly number[]): bigint {
  return bytes.reduce((bits, byte) => (bits << 8n) | BigInt(byte), 0n);
}

function toBytes(bits: bigint, count: number): number[] {
  return Array.from({ length: count }, (_, index) =>
    Number((bits >> BigInt(8 * (count - 1 - index))) & 0xffn),
  );
}
