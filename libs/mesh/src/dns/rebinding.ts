import { isIPv4, isIPv6 } from 'node:net';
import { isInRange, type AddressRange } from '@cloudless/network';

/**
 * Returns true when the address of a name outside the cluster would lead clients to programs of
 * their own machine, of the cluster or of the cloud's metadata service: loopback, unspecified,
 * link-local and virtual addresses, also inside IPv6 addresses. Private addresses are legitimate:
 * the resolvers of a company answer them.
 */
export function isRebindingAddress(address: string, range: AddressRange | undefined): boolean {
  if (isIPv4(address)) {
    if (/^(0|127)\./.test(address) || address.startsWith('169.254.')) return true;
    return range !== undefined && isInRange(range, address);
  }
  if (!isIPv6(address)) return true; // nothing that a client should connect to
  const groups = expand(address);
  const [first = 0] = groups;
  const leading = groups.slice(0, 6);
  const embedded = [groups[6] ?? 0, groups[7] ?? 0].flatMap((group) => [group >> 8, group & 255]);
  const isMapped = leading.slice(0, 5).every((group) => group === 0) && leading[5] === 0xffff;
  const isCompatible = leading.every((group) => group === 0); // also :: and ::1
  const isTranslated = first === 0x64 && groups[1] === 0xff9b; // NAT64, RFC 6052
  if (isCompatible && embedded[0] === 0) return true;
  if (isMapped || isCompatible || isTranslated) {
    return isRebindingAddress(embedded.join('.'), range);
  }
  return (first & 0xffc0) === 0xfe80;
}

function expand(address: string): readonly number[] {
  const dotted = /^(.*:)(\d+)\.(\d+)\.(\d+)\.(\d+)$/.exec(address.split('%', 1)[0] ?? '');
  const plain =
    dotted === null
      ? (address.split('%', 1)[0] ?? '')
      : `${dotted[1]}${pair(dotted[2], dotted[3])}:${pair(dotted[4], dotted[5])}`;
  const [left = '', right] = plain.split('::');
  const parse = (text: string): number[] =>
    text === '' ? [] : text.split(':').map((group) => parseInt(group, 16));
  if (right === undefined) return parse(left);
  const zeros = Math.max(0, 8 - parse(left).length - parse(right).length);
  return [...parse(left), ...new Array<number>(zeros).fill(0), ...parse(right)];
}

function pair(high = '0', low = '0'): string {
  return (Number(high) * 256 + Number(low)).toString(16);
}
