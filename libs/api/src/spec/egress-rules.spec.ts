import { create, type MessageInitShape } from '@bufbuild/protobuf';
import {
  EgressSchema,
  Port_Protocol as Protocol,
  WorkloadSpecSchema,
  checkSpec,
  diffSpecs,
  toTemplate,
  validateMessage,
  type EgressDestinationSchema,
} from '../index.js';

type Init = MessageInitShape<typeof WorkloadSpecSchema>;
type DestinationInit = MessageInitShape<typeof EgressDestinationSchema>;

const cidr = (value: string, ports: DestinationInit['ports'] = []): DestinationInit => ({
  destination: { case: 'cidr', value },
  ports,
});
const service = (value: string): DestinationInit => ({
  destination: { case: 'service', value },
});
const aLimitedSpec = (init: Init = {}, allowed: readonly DestinationInit[] = []) =>
  create(WorkloadSpecSchema, {
    image: 'nginx:alpine',
    ...init,
    network: { ...init.network, egress: { allowed: [...allowed] } },
  } as Init);

/** Returns the violations that `checkSpec` reports, as texts. */
function problemsOf(init: Init, allowed: readonly DestinationInit[] = []): readonly string[] {
  try {
    checkSpec(aLimitedSpec(init, allowed));
    return [];
  } catch (reason) {
    const { violations } = reason as { violations: { field: string; message: string }[] };
    return violations.map(({ field, message }) => `${field}: ${message}`);
  }
}

describe('checkSpec for the limit of destinations', () => {
  it('accepts networks, addresses, services and no destination at all', () => {
    const allowed = [
      cidr('10.0.0.0/8', [
        { port: 5432 },
        { port: 8000, endPort: 8999 },
        { protocol: Protocol.UDP, port: 53 },
      ]),
      ...['0.0.0.0/0', '2001:db8::/32', '192.0.2.7', '::1'].map((each) => cidr(each)),
      ...['shop/db', 'shop/*', '*', '0/1'].map(service),
    ];
    expect(problemsOf({}, allowed)).toEqual([]);
    expect(problemsOf({})).toEqual([]);
    expect(() => {
      validateMessage(EgressSchema, create(EgressSchema, { allowed }));
    }).not.toThrow();
  });

  it.each<{ destination: DestinationInit; problem: string }>([
    {
      destination: {},
      problem: ': needs a destination: set cidr, such as 10.0.0.0/8, or service, such as shop/web',
    },
    {
      destination: cidr('10.0.0.1/8'),
      problem: '.cidr: 10.0.0.1/8 has host bits: use 10.0.0.0/8',
    },
    {
      destination: cidr('db.example'),
      problem:
        '.cidr: "db.example" is not a network or an address; use a form such as 10.0.0.0/8, 2001:db8::/32 or 192.0.2.7',
    },
    {
      destination: service('web'),
      problem: '.service: "web" has no namespace; write <namespace>/web, such as shop/web',
    },
    {
      destination: service('web.shop'),
      problem: '.service: "web.shop" is a host name; write shop/web',
    },
    {
      destination: service('web.shop.svc.cluster.local'),
      problem: '.service: "web.shop.svc.cluster.local" is a host name; write shop/web',
    },
    ...['', '*/web', 'shop/', 'Shop/web', 'shop/web/80', 'shop/w*', 'shop/-a'].map((text) => ({
      destination: service(text),
      problem: `.service: ${JSON.stringify(text)} is not a service; use <namespace>/<name>, <namespace>/*, or * for all services`,
    })),
    {
      destination: cidr('10.0.0.0/8', [{ port: 1 }, { port: 443, endPort: 80 }]),
      problem: '.ports[1].end_port: 80 is below port 443; end_port is the last port of the range',
    },
  ])('refuses $problem', ({ destination, problem }) => {
    expect(problemsOf({}, [service('*'), destination])).toEqual([
      `spec.network.egress.allowed[1]${problem}`,
    ]);
  });

  it.each([{ port: 0 }, { port: 65_536 }, { port: 1, endPort: 65_536 }, { port: 1, protocol: 2 }])(
    'refuses the port %j',
    (port) => {
      const egress = create(EgressSchema, { allowed: [cidr('10.0.0.0/8', [port as never])] });
      expect(() => {
        validateMessage(EgressSchema, egress);
      }).toThrow('allowed[0].ports[0]');
    },
  );

  it('needs a container', () => {
    expect(problemsOf({ image: '', command: ['serve'] })).toEqual([
      'spec.network: needs a container: set image',
    ]);
  });

  it.each<{ spec: Init; problem: string }>([
    {
      spec: { network: { hostNetwork: true } },
      problem:
        'network.host_network: the network of the node has no limit of destinations; remove host_network or egress',
    },
    {
      spec: { security: { privileged: true } },
      problem:
        'security.privileged: a privileged container can change the packet filter of network.egress; remove privileged or egress',
    },
    {
      spec: { security: { runtimeClass: 'gvisor' } },
      problem:
        'security.runtime_class: sandboxed runtimes send packets past the packet filter of network.egress; remove runtime_class or egress',
    },
    {
      spec: { security: { seccompProfile: 'Unconfined' } },
      problem:
        'security.seccomp_profile: without a seccomp profile a container can use sockets that the packet filter of network.egress does not see, such as AF_VSOCK; remove seccomp_profile or egress',
    },
    ...[
      ...['ALL', 'NET_ADMIN', 'cap_net_raw', 'SYS_ADMIN', 'SYS_MODULE', 'SYS_RAWIO'],
      ...['SYS_PTRACE', 'BPF', 'PERFMON', 'DAC_READ_SEARCH', 'MKNOD', 'SYS_BOOT'],
    ].map((name) => ({
      spec: { security: { capabilitiesAdd: ['KILL', name] } },
      problem: expect.stringContaining(
        `capabilities_add[1]: ${name.replace('cap_', '').toUpperCase()} gives control over the network or the kernel, and so evades network.egress; remove `,
      ) as string,
    })),
  ])('refuses settings that evade the limit: $problem', ({ spec, problem }) => {
    const [text, ...others] = problemsOf(spec);
    expect(others).toEqual([]);
    expect(text?.replace(/^spec\./, '')).toEqual(problem);
  });

  it('accepts capabilities that change nothing outside of the container', () => {
    expect(problemsOf({ security: { capabilitiesAdd: ['NET_BIND_SERVICE', 'CHOWN'] } })).toEqual(
      [],
    );
  });
});

describe('DNS servers of a spec with a limit of destinations', () => {
  const network = { dnsServers: ['10.0.0.53'] };
  const refused =
    'spec.network.dns_servers[0]: egress does not allow this server; add { cidr: "10.0.0.53/32", ports: [{ protocol: UDP, port: 53 }, { port: 53 }] } to spec.network.egress.allowed, or remove the server';

  it.each<{ name: string; allowed: DestinationInit[]; problems: string[] }>([
    { name: 'no destination', allowed: [], problems: [refused] },
    { name: 'another network', allowed: [cidr('10.1.0.0/16')], problems: [refused] },
    { name: 'services', allowed: [service('*')], problems: [refused] },
    { name: 'TCP only', allowed: [cidr('10.0.0.0/8', [{ port: 53 }])], problems: [refused] },
    { name: 'the address', allowed: [cidr('10.0.0.53')], problems: [] },
    {
      name: 'a range of UDP ports of the network',
      allowed: [cidr('10.0.0.0/8', [{ protocol: Protocol.UDP, port: 50, endPort: 60 }])],
      problems: [],
    },
  ])('with $name', ({ allowed, problems }) => {
    expect(problemsOf({ network }, allowed)).toEqual(problems);
  });

  it('may be in the container itself', () => {
    expect(problemsOf({ network: { dnsServers: ['127.0.0.1', '::1'] } })).toEqual([]);
  });
});

describe('the version of a workload', () => {
  const aSpec = (...allowed: DestinationInit[]) => aLimitedSpec({}, allowed);

  it('stays with equal destinations, and is another with other destinations or none', () => {
    const spec = aSpec(cidr('10.0.0.0/8', [{ port: 5432 }]));
    const same = aSpec(cidr('10.0.0.0/8', [{ port: 5432, protocol: Protocol.TCP }]));
    expect(diffSpecs(toTemplate(spec), toTemplate(same))).toEqual([]);
    const changes = (after: Init) =>
      diffSpecs(toTemplate(spec), toTemplate(create(WorkloadSpecSchema, after)));
    expect(changes(aSpec(cidr('10.0.0.0/8')))).toEqual([
      {
        path: 'network.egress.allowed',
        before: [{ cidr: '10.0.0.0/8', ports: [{ port: 5432 }] }],
        after: [{ cidr: '10.0.0.0/8' }],
      },
    ]);
    expect(changes({ image: 'nginx:alpine' })).toHaveLength(1);
    expect(
      diffSpecs(
        toTemplate(aSpec()),
        toTemplate(create(WorkloadSpecSchema, { image: 'nginx:alpine' })),
      ),
    ).toHaveLength(1);
  });
});
