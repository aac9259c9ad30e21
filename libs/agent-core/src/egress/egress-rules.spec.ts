import { BlockList } from 'node:net';
import { create, type MessageInitShape } from '@bufbuild/protobuf';
import fc from 'fast-check';
import { EgressSchema, Port_Protocol, type WorkloadSpecSchema } from '@cloudless/api';
import { toContainerId } from '@cloudless/base';
import type { EgressRule } from '@cloudless/runtime';
import { toContainerRequest } from '../container/to-container-request.js';
import { aStartOrder } from '../testing/index.js';
import { listServicePatterns, toEgressRules } from './egress-rules.js';

const toService = (value: string) => ({ case: 'service' as const, value });
const toCidr = (value: string) => ({ case: 'cidr' as const, value });

interface Packet {
  readonly address: string;
  readonly protocol: 'tcp' | 'udp' | 'icmp';
  readonly port: number;
}

/** True when an address is in a network or is the address itself. */
function isIn(networkOrAddress: string, address: string): boolean {
  const [network = '', prefix] = networkOrAddress.split('/');
  const family = network.includes(':') ? 'ipv6' : 'ipv4';
  const list = new BlockList();
  if (prefix === undefined) list.addAddress(network, family);
  else list.addSubnet(network, Number(prefix), family);
  return list.check(address, address.includes(':') ? 'ipv6' : 'ipv4');
}

/** Reads rules as a runtime does. */
const admits = (rules: readonly EgressRule[], { address, protocol, port }: Packet): boolean =>
  rules.some(
    ({ network, ports }) =>
      isIn(network, address) &&
      (ports === undefined ||
        ports.some(
          (each) => each.protocol === protocol && each.first <= port && port <= each.last,
        )),
  );

const NETWORKS = ['10.0.0.0/30', '10.0.0.1', '10.0.0.0/8', '0.0.0.0/0', '2001:db8::/126', '::1'];
const PATTERNS = ['shop/web', 'shop/*', '*', 'later/none'];
const ADDRESSES = ['10.0.0.1', '10.0.0.2', '10.9.9.9', '192.0.2.7', '2001:db8::1', '::1'];
const arbPort = fc.integer({ min: 1, max: 6 });
const arbPorts = fc.array(
  fc.record({
    protocol: fc.constantFrom(Port_Protocol.TCP, Port_Protocol.UDP),
    port: arbPort,
    endPort: fc.constantFrom(0, 6),
  }),
  { maxLength: 3 },
);
const arbDestination = fc.record({
  destination: fc.oneof(
    fc.constantFrom(...NETWORKS).map(toCidr),
    fc.constantFrom(...PATTERNS).map(toService),
  ),
  ports: arbPorts,
});
const arbAddresses = fc
  .uniqueArray(
    fc.tuple(
      fc.constantFrom(...PATTERNS),
      fc.uniqueArray(
        fc.record({
          address: fc.constantFrom('10.0.0.2', '192.0.2.7', '2001:db8::1'),
          ports: fc.uniqueArray(
            fc.record({ protocol: fc.constantFrom('tcp' as const, 'udp' as const), port: arbPort }),
            { maxLength: 3 },
          ),
        }),
        { selector: ({ address }) => address },
      ),
    ),
    { selector: ([pattern]) => pattern },
  )
  .map((entries) => new Map(entries));
const arbPacket: fc.Arbitrary<Packet> = fc.record({
  address: fc.constantFrom(...ADDRESSES),
  protocol: fc.constantFrom('tcp', 'udp', 'icmp'),
  port: arbPort,
});

describe('toEgressRules', () => {
  it('admits exactly the addresses, protocols and ports of the destinations', () => {
    fc.assert(
      fc.property(
        fc.array(arbDestination, { maxLength: 4 }),
        arbAddresses,
        arbPacket,
        (allowed, addresses, packet) => {
          const isAllowed = allowed.some(({ destination, ports }) => {
            const { address, protocol, port } = packet;
            const isTarget =
              destination.case === 'cidr'
                ? isIn(destination.value, address)
                : (addresses.get(destination.value) ?? []).some(
                    (service) =>
                      isIn(service.address, address) &&
                      service.ports.some(
                        (each) => each.protocol === protocol && each.port === port,
                      ),
                  );
            const isOpen =
              ports.length === 0 ||
              ports.some(
                (each) =>
                  Port_Protocol[each.protocol].toLowerCase() === protocol &&
                  port >= each.port &&
                  port <= (each.endPort === 0 ? each.port : each.endPort),
              );
            return isOpen && isTarget;
          });
          const rules = toEgressRules(create(EgressSchema, { allowed }), addresses);
          expect(admits(rules, packet)).toBe(isAllowed);
        },
      ),
      { numRuns: 1_000 },
    );
  });

  it('names each network once for each destination, an address as network of one address', () => {
    const egress = create(EgressSchema, {
      allowed: [
        { destination: toService('shop/web'), ports: [{ port: 80 }, { port: 443, endPort: 445 }] },
        { destination: toCidr('2001:db8::7') },
      ],
    });
    const ports = [80, 444, 8_080].map((port) => ({ protocol: 'tcp' as const, port }));
    const addresses = new Map([['shop/web', [{ address: '10.96.0.7', ports }]]]);
    expect(toEgressRules(egress, addresses, '10.96.0.10')).toEqual([
      {
        network: '10.96.0.7/32',
        ports: [
          { protocol: 'tcp', first: 80, last: 80 },
          { protocol: 'tcp', first: 444, last: 444 },
        ],
      },
      { network: '2001:db8::7/128' },
      {
        network: '10.96.0.10/32',
        ports: [
          { protocol: 'udp', first: 53, last: 53 },
          { protocol: 'tcp', first: 53, last: 53 },
        ],
      },
    ]);
  });

  it('asks for each pattern once', () => {
    const allowed = ['*', 'shop/web', '*'].map((pattern) => ({ destination: toService(pattern) }));
    const egress = create(EgressSchema, {
      allowed: [...allowed, { destination: toCidr('10.0.0.1') }],
    });
    expect(listServicePatterns(egress)).toEqual(['*', 'shop/web']);
    expect(listServicePatterns(undefined)).toEqual([]);
  });
});

describe('toContainerRequest with limited destinations', () => {
  const rulesOf = (spec: MessageInitShape<typeof WorkloadSpecSchema>) =>
    toContainerRequest(aStartOrder({ spec: { image: 'a', command: [], ...spec } }), {
      ...{ clusterId: 'c', nodeId: 'n', containerId: toContainerId('a'.repeat(64)) },
      services: { dns: { server: '10.96.0.10', domain: 'cloudless.internal' }, services: [] },
    }).network?.egress?.map(({ network }) => network);
  const toNetwork = (dnsServers: string[] = []) => ({ egress: { allowed: [] }, dnsServers });

  it.each([
    { name: 'no limit', spec: {}, rules: undefined },
    {
      name: 'no destination but the DNS server of the node',
      spec: { network: toNetwork() },
      rules: ['10.96.0.10/32'],
    },
    {
      name: 'no destination with other DNS servers',
      spec: { network: toNetwork(['9.9.9.9']) },
      rules: [],
    },
    {
      name: 'no address of a service that is not known',
      spec: {
        network: {
          egress: { allowed: [{ destination: toService('*') }] },
          dnsServers: ['9.9.9.9'],
        },
      },
      rules: [],
    },
  ])('requests $name', ({ spec, rules }) => {
    expect(rulesOf(spec)).toEqual(rules);
  });
});
