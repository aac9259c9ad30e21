import fc from 'fast-check';
import type { EgressPortRange, EgressRule } from '@cloudless/runtime';
import { formatIpNetwork, type IpNetwork } from '../egress/ip-network.js';

/** Generates networks of both families. Few bits vary, so that networks often overlap. */
export const arbNetwork: fc.Arbitrary<IpNetwork> = fc
  .record({ isIpv4: fc.boolean(), part: fc.integer({ min: 0, max: 15 }), length: fc.nat(128) })
  .map(({ isIpv4, part, length }) => {
    const bits = isIpv4 ? 32 : 128;
    const prefix = length % (bits + 1);
    const hostBits = BigInt(bits - prefix);
    const address = (BigInt(part) << BigInt(bits - 4)) | BigInt(part);
    return { family: isIpv4 ? 4 : 6, first: (address >> hostBits) << hostBits, prefix };
  });

const arbPorts: fc.Arbitrary<EgressPortRange> = fc
  .record({
    protocol: fc.constantFrom('tcp' as const, 'udp' as const),
    first: fc.integer({ min: 1, max: 65_535 }),
    length: fc.oneof(fc.constant(0), fc.nat(65_535)),
  })
  .map(({ protocol, first, length }) => ({
    protocol,
    first,
    last: Math.min(first + length, 65_535),
  }));

/** Generates valid rules. */
export const arbRules: fc.Arbitrary<readonly EgressRule[]> = fc.array(
  fc.oneof(
    arbNetwork.map((network) => ({ network: formatIpNetwork(network) })),
    fc.record({
      network: arbNetwork.map(formatIpNetwork),
      ports: fc.array(arbPorts, { minLength: 1, maxLength: 6 }),
    }),
  ),
  { maxLength: 12 },
);

/** Returns true when `outer` has all addresses of `inner`. */
export function contains(outer: IpNetwork, inner: IpNetwork): boolean {
  const hostBits = BigInt((outer.family === 4 ? 32 : 128) - outer.prefix);
  return (
    outer.family === inner.family &&
    outer.prefix <= inner.prefix &&
    outer.first >> hostBits === inner.first >> hostBits
  );
}
