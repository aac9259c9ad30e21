import type { MessageInitShape } from '@bufbuild/protobuf';
import fc from 'fast-check';
import { Port_Protocol as Protocol, type EgressDestinationSchema } from '@cloudless/api';
import { compilePolicy } from '../compile-policy.js';
import type { EgressAllowed } from '../model.js';
import { createPolicySet, evaluatePolicies } from '../policy-set.js';
import { aPolicy, aRule, aSubject } from '../testing/builders.js';

/** A small universe: 8 addresses of each family, 3 services, 4 ports, TCP, UDP and ICMP. */
const WIDTH = 3;
const INDEXES = Array.from({ length: 2 ** WIDTH }, (_, index) => index);
const SERVICES = ['a/x', 'a/y', 'b/x'];
const PORTS = [1, 2, 3, 4];
interface Connection {
  readonly to: { readonly family: 4 | 6; readonly index: number } | string;
  readonly protocol: 'TCP' | 'UDP' | 'ICMP';
  readonly port: number;
}
const targets: readonly Connection['to'][] = [
  ...INDEXES.flatMap((index) => ([4, 6] as const).map((family) => ({ family, index }))),
  ...SERVICES,
];
const UNIVERSE: readonly Connection[] = targets.flatMap((to) =>
  (['TCP', 'UDP', 'ICMP'] as const).flatMap((protocol) =>
    PORTS.map((port) => ({ to, protocol, port })),
  ),
);

/** A destination with the connections that it admits, decided without the rule. */
interface Destination {
  readonly config: EgressAllowed;
  readonly admits: (connection: Connection) => boolean;
}

const networks = fc
  .record({
    family: fc.constantFrom<4 | 6>(4, 6),
    length: fc.integer({ min: 0, max: WIDTH }),
    index: fc.constantFrom(...INDEXES),
  })
  .map(({ family, length, index }) => {
    const size = 2 ** (WIDTH - length);
    const first = index - (index % size);
    const cidr =
      family === 4
        ? `10.0.0.${first}/${32 - WIDTH + length}`
        : `fd00::${first}/${128 - WIDTH + length}`;
    return {
      config: { cidr } as EgressAllowed,
      includes: (to: Connection['to']) =>
        typeof to !== 'string' &&
        to.family === family &&
        to.index >= first &&
        to.index < first + size,
    };
  });
const services = fc.constantFrom('*', 'a/*', 'b/*', ...SERVICES).map((service) => ({
  config: { service } as EgressAllowed,
  includes: (to: Connection['to']) =>
    typeof to === 'string' &&
    (service === '*' || to === service || service === `${to.slice(0, 1)}/*`),
}));
const ranges = fc
  .record({
    protocol: fc.constantFrom<'TCP' | 'UDP'>('TCP', 'UDP'),
    ends: fc.tuple(fc.constantFrom(...PORTS), fc.constantFrom(...PORTS)),
  })
  .map(({ protocol, ends }) => ({ protocol, port: Math.min(...ends), endPort: Math.max(...ends) }));
const destinations: fc.Arbitrary<Destination> = fc
  .record({ place: fc.oneof(networks, services), ports: fc.array(ranges, { maxLength: 2 }) })
  .map(({ place, ports }) => ({
    config: { ...place.config, ...(ports.length === 0 ? {} : { ports }) },
    admits: ({ to, protocol, port }) =>
      place.includes(to) &&
      (ports.length === 0 ||
        ports.some(
          (range) => range.protocol === protocol && range.port <= port && port <= range.endPort,
        )),
  }));

function toMessage({
  cidr,
  service = '',
  ports = [],
}: EgressAllowed): MessageInitShape<typeof EgressDestinationSchema> {
  return {
    destination:
      cidr === undefined ? { case: 'service', value: service } : { case: 'cidr', value: cidr },
    ports: ports.map(({ protocol = 'TCP', port, endPort = 0 }) => ({
      protocol: Protocol[protocol],
      port,
      endPort,
    })),
  };
}

/** Returns whether the rule accepts each of the destinations of a workload. */
function judge(allowed: readonly Destination[], given: readonly Destination[]): readonly boolean[] {
  const rule = aRule({
    type: 'EGRESS_DESTINATION',
    config: { allowed: allowed.map(({ config }) => config) },
  });
  const set = createPolicySet([compilePolicy(aPolicy({ rules: [rule] }))], 'ALLOW');
  const egress = { allowed: given.map(({ config }) => toMessage(config)) };
  const { violations } = evaluatePolicies(set, aSubject({ network: { egress } }));
  const fields = new Set(violations.map(({ field }) => field));
  return given.map((_, index) => !fields.has(`spec.network.egress.allowed[${index}]`));
}

const lists = fc.array(destinations, { maxLength: 4 });

describe('a rule of type EGRESS_DESTINATION', () => {
  it('accepts no destination that admits a connection which no allowed destination admits', () => {
    fc.assert(
      fc.property(lists, lists, (allowed, given) => {
        const accepted = judge(allowed, given);
        for (const connection of UNIVERSE) {
          if (allowed.some(({ admits }) => admits(connection))) continue;
          for (const [index, { admits }] of given.entries())
            if (accepted[index] === true && admits(connection))
              throw new Error(`${JSON.stringify(connection)} is admitted`);
        }
      }),
      { numRuns: 500 },
    );
  });

  it('accepts a destination with one range of ports exactly when one allowed destination admits all its connections', () => {
    const single = destinations.filter(({ config: { ports = [] } }) => ports.length <= 1);
    fc.assert(
      fc.property(fc.array(single, { maxLength: 4 }), single, (allowed, given) => {
        const admitted = UNIVERSE.filter((connection) => given.admits(connection));
        const isCovered = allowed.some(({ admits }) => admitted.every(admits));
        // A namespace has services that are not in this universe: no single service is all of it.
        const isPattern = given.config.service?.endsWith('*') ?? false;
        const [accepted] = judge(allowed, [given]);
        if (isPattern) expect(accepted === true && !isCovered).toBe(false);
        else expect(accepted).toBe(isCovered);
      }),
      { numRuns: 500 },
    );
  });
});
