import fc from 'fast-check';
import type { EgressPortRange, EgressRule } from '@cloudless/runtime';
import { formatIpNetwork, type IpNetwork } from '@cloudless/api';

/** Generates networks of both families. Few bits vary, so that networks often overlap. */
export const arbNetwork: fc.Arbitrary<IpNetwork> = fc
  .record({ isIpv4: fc.boolean(), part: fc.integer({ min: 0, max: 15 }), length: fc.nat(128) })
  .map(({ isIpv4, part, length }) => {
    const width = isIpv4 ? 32 : 128;
    const prefixLength = length % (width + 1);
    const hostBits = BigInt(width - prefixLength);
    const address = (BigInt(part) << BigInt(width - 4)) | BigInt(part);
    return { family: isIpv4 ? 4 : 6, bits: (address >> hostBits) << hostBits, prefixLength };
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
