import ipaddr from 'ipaddr.js';
import { InvalidInputError } from '@cloudless/base';

/** A range of IPv4 addresses from which services get their virtual addresses. */
export interface AddressRange {
  /** The range in CIDR notation with the network address, such as `10.96.0.0/16`. */
  readonly text: string;
  /** The first address of the range as a number. */
  readonly first: number;
  /** Number of addresses in the range. */
  readonly size: number;
}

/**
 * Number of addresses at the start of a range that no service gets: the network address, the DNS
 * server and addresses for later use by the cluster. The last address is not assigned either.
 */
export const RESERVED_ADDRESSES = 16;

const DNS_INDEX = 10;
const SHORTEST_PREFIX = 8;
const LONGEST_PREFIX = 26;

/**
 * Parses a range of virtual addresses.
 * @param text - IPv4 range with a prefix length of 8 to 26, such as `10.96.0.0/16`.
 * @param field - Name of the setting for the error message, such as `--service-cidr`.
 * @throws {@link InvalidInputError} when `text` is no such range, has bits after the prefix, or
 *   contains addresses that no service can have, such as multicast or link-local addresses.
 */
export function parseAddressRange(text: string, field = 'service CIDR'): AddressRange {
  const refuse = (message: string): never => {
    throw new InvalidInputError([{ field, message }]);
  };
  const [address, prefixText, ...rest] = text.split('/');
  const prefix = Number(prefixText);
  const isValid =
    rest.length === 0 &&
    /^\d{1,2}$/.test(prefixText ?? '') &&
    ipaddr.IPv4.isValidFourPartDecimal(address ?? '');
  if (!isValid || prefix > 32) {
    return refuse(`"${text}" is not an IPv4 range; write a range such as 10.96.0.0/16`);
  }
  if (prefix < SHORTEST_PREFIX || prefix > LONGEST_PREFIX) {
    return refuse(
      `"${text}" has prefix length ${prefix}; use ${SHORTEST_PREFIX} to ${LONGEST_PREFIX}`,
    );
  }
  const size = 2 ** (32 - prefix);
  const first = toNumber(address ?? '');
  if (first % size !== 0) {
    const network = `${toAddress(first - (first % size))}/${prefix}`;
    return refuse(`"${text}" has address bits after the prefix; did you mean ${network}?`);
  }
  const kinds = [first, first + size - 1].map((end) => ipaddr.IPv4.parse(toAddress(end)).range());
  const unusable = kinds.find((kind) => UNUSABLE_KINDS.has(kind));
  if (unusable !== undefined || (first < LINK_LOCAL_FIRST && first + size > LINK_LOCAL_FIRST)) {
    return refuse(
      `"${text}" contains ${unusable ?? 'linkLocal'} addresses, which services cannot have`,
    );
  }
  return { text: `${toAddress(first)}/${prefix}`, first, size };
}

const UNUSABLE_KINDS: ReadonlySet<string> = new Set([
  'unspecified',
  'broadcast',
  'multicast',
  'linkLocal',
  'reserved',
]);
const LINK_LOCAL_FIRST = toNumber('169.254.0.0');

/**
 * Returns the address of the DNS server in a range: the tenth address after the network address.
 */
export function dnsAddressOf(range: AddressRange): string {
  return toAddress(range.first + DNS_INDEX);
}

/**
 * Returns true when an address is in the range. False for IPv6 addresses and for text that is no
 * address.
 */
export function isInRange(range: AddressRange, address: string): boolean {
  const number = parseNumber(address);
  return number !== undefined && number >= range.first && number < range.first + range.size;
}

/** Returns true when a service may have the address: in the range, and not reserved. */
export function isAssignable(range: AddressRange, address: string): boolean {
  const number = parseNumber(address);
  return number !== undefined && isAssignableIndex(range, number - range.first);
}

/** Number of addresses that services can have at a time. */
export function assignableCount(range: AddressRange): number {
  return range.size - RESERVED_ADDRESSES - 1;
}

/** Returns the address with number `index` among those that services can have. */
export function assignableAddressAt(range: AddressRange, index: number): string {
  return toAddress(range.first + RESERVED_ADDRESSES + index);
}

function isAssignableIndex(range: AddressRange, index: number): boolean {
  return index >= RESERVED_ADDRESSES && index < range.size - 1;
}

function parseNumber(address: string): number | undefined {
  return ipaddr.IPv4.isValidFourPartDecimal(address) ? toNumber(address) : undefined;
}

function toNumber(address: string): number {
  return address.split('.').reduce((number, octet) => number * 256 + Number(octet), 0);
}

function toAddress(number: number): string {
  return [number / 2 ** 24, number / 2 ** 16, number / 2 ** 8, number]
    .map((part) => Math.floor(part) % 256)
    .join('.');
}
