import type { MessageInitShape } from '@bufbuild/protobuf';
import {
  Port_Protocol as Protocol,
  type EgressDestinationSchema,
  type EgressPortSchema,
} from '@cloudless/api';
import { compilePolicy } from '../compile-policy.js';
import type { Finding, PolicySubject, RuleConfigs, RuleType } from '../model.js';
import { createPolicySet, evaluatePolicies } from '../policy-set.js';
import { aPolicy, aProcess, aRule, aSubject } from '../testing/builders.js';
import { RULE_TYPES } from './rule-types.js';

/** Returns what a rule finds in a workload. */
function find(type: RuleType, config: object, subject: PolicySubject): readonly Finding[] {
  const policy = compilePolicy(aPolicy({ rules: [aRule({ type, config } as never)] }));
  const { violations } = evaluatePolicies(createPolicySet([policy], 'ALLOW'), subject);
  expect(violations.filter(({ failed }) => failed)).toEqual([]);
  return violations.map(({ field, found, allowed }) => ({ field, found, allowed }));
}

type Changes = Parameters<typeof aSubject>[0];
/** A configuration, a workload, and what the rule finds there; nothing when the rule accepts it. */
type Case<Type extends RuleType> = readonly [
  title: string,
  config: RuleConfigs[Type],
  spec: Changes,
  finding?: readonly [field: string, found: string, allowed: string],
];

const image = 'spec.image';
const add = 'spec.security.capabilities_add[0]';
const destination = 'spec.network.egress.allowed';
const MIB = 1024n * 1024n;

const CASES: { readonly [Type in RuleType]: readonly Case<Type>[] } = {
  IMAGE_REGISTRY: [
    ['an allowed registry', { allowed: ['ghcr.io'] }, { image: 'ghcr.io/team/web:1' }],
    [
      'another registry',
      { allowed: ['ghcr.io', 'r.example:5000'] },
      { image: 'quay.io/web' },
      [image, '"quay.io/web"', 'an image from ghcr.io, r.example:5000'],
    ],
    ['an image without a registry', { allowed: ['docker.io/library'] }, { image: 'nginx:1' }],
    ['a repository of docker.io', { allowed: ['docker.io/team'] }, { image: 'team/web@sha256:1' }],
    [
      'a repository that begins like an allowed one',
      { allowed: ['ghcr.io/team'] },
      { image: 'ghcr.io/teams/web' },
      [image, '"ghcr.io/teams/web"', 'an image from ghcr.io/team'],
    ],
    [
      'a registry that begins like an allowed one',
      { allowed: ['ghcr.io'] },
      { image: 'ghcr.io.example/web' },
      [image, '"ghcr.io.example/web"', 'an image from ghcr.io'],
    ],
    [
      'an allowed registry on another port',
      { allowed: ['r.example:5000'] },
      { image: 'r.example:6000/web' },
      [image, '"r.example:6000/web"', 'an image from r.example:5000'],
    ],
    ['a host below a wildcard', { allowed: ['*.example.com'] }, { image: 'a.b.example.com/web' }],
    [
      'the host of the wildcard itself',
      { allowed: ['*.example.com'] },
      { image: 'example.com/web' },
      [image, '"example.com/web"', 'an image from *.example.com'],
    ],
    [
      'a denied registry in upper case with the default port',
      { denied: ['bad.example'] },
      { image: 'BAD.example:443/web' },
      [image, '"BAD.example:443/web"', 'an image that is not from bad.example'],
    ],
    [
      'another name of docker.io',
      { denied: ['docker.io'] },
      { image: 'index.docker.io/library/nginx' },
      [image, '"index.docker.io/library/nginx"', 'an image that is not from docker.io'],
    ],
    [
      'a denied repository of an allowed registry',
      { allowed: ['ghcr.io'], denied: ['ghcr.io/old'] },
      { image: 'ghcr.io/old/web' },
      [image, '"ghcr.io/old/web"', 'an image that is not from ghcr.io/old'],
    ],
    [
      'a tag where a digest is needed',
      { requireDigest: true },
      { image: 'nginx:1' },
      [image, '"nginx:1"', 'an image with a digest (@sha256:…)'],
    ],
    ['a digest', { requireDigest: true }, { image: 'nginx@sha256:0' }],
  ],
  CAPABILITIES: [
    ['no capability', { allowedAdd: [] }, {}],
    [
      'an added capability where none is allowed',
      { allowedAdd: [] },
      { security: { capabilitiesAdd: ['CHOWN'] } },
      [add, 'CHOWN', 'adding no capability'],
    ],
    [
      'an allowed capability in another spelling',
      { allowedAdd: ['CAP_NET_BIND_SERVICE'] },
      { security: { capabilitiesAdd: ['net_bind_service'] } },
    ],
    [
      'ALL where some are allowed',
      { allowedAdd: ['CHOWN'] },
      { security: { capabilitiesAdd: ['all'] } },
      [add, 'ALL', 'adding only CHOWN'],
    ],
    [
      'a denied capability',
      { deniedAdd: ['SYS_ADMIN'] },
      { security: { capabilitiesAdd: ['cap_sys_admin'] } },
      [add, 'SYS_ADMIN', 'adding none of SYS_ADMIN'],
    ],
    [
      'ALL where one is denied',
      { deniedAdd: ['SYS_ADMIN'] },
      { security: { capabilitiesAdd: ['ALL'] } },
      [add, 'ALL', 'adding none of SYS_ADMIN'],
    ],
    [
      'a capability that is not denied',
      { deniedAdd: ['SYS_ADMIN'] },
      { security: { capabilitiesAdd: ['CHOWN'] } },
    ],
    [
      'a privileged container, which has all',
      { deniedAdd: ['SYS_ADMIN'] },
      { security: { privileged: true } },
      ['spec.security.privileged', 'true, which adds all capabilities', 'false'],
    ],
    [
      'a privileged container where ALL is allowed',
      { allowedAdd: ['ALL'] },
      { security: { privileged: true } },
    ],
    [
      'ALL dropped where one must be',
      { requiredDrop: ['CHOWN'] },
      { security: { capabilitiesDrop: ['ALL'] } },
    ],
    [
      'one dropped where ALL must be',
      { requiredDrop: ['ALL'] },
      { security: { capabilitiesDrop: ['CHOWN'] } },
      ['spec.security.capabilities_drop', '["CHOWN"]', 'dropping ALL'],
    ],
  ],
  EGRESS_DESTINATION: [
    [
      'no limit of destinations',
      { allowed: [{ cidr: '10.0.0.0/8', ports: [{ port: 443 }] }, { service: 'shop/*' }] },
      {},
      [
        'spec.network.egress',
        'not set',
        'a list of destinations within 10.0.0.0/8 port 443/tcp, service shop/*',
      ],
    ],
    ['a limit to no destination', { allowed: [] }, egress()],
    [
      'no limit where no destination is allowed',
      { allowed: [] },
      { network: { hostname: 'web' } },
      ['spec.network.egress', 'not set', '{}, which is no destination'],
    ],
    [
      'a destination where none is allowed',
      { allowed: [] },
      egress(cidr('10.0.0.0/8', tcp(5432))),
      [`${destination}[0]`, '10.0.0.0/8 port 5432/tcp', 'no destination'],
    ],
    [
      'networks and addresses within an allowed network',
      { allowed: [{ cidr: '10.0.0.0/8' }, { cidr: '2001:db8::/32' }] },
      egress(cidr('10.0.0.0/8'), cidr('10.1.2.3', tcp(1, 9)), cidr('2001:db8:1::/48')),
    ],
    [
      'a network around an allowed network',
      { allowed: [{ cidr: '10.0.0.0/9' }, { cidr: '10.128.0.0/9' }] },
      egress(cidr('10.0.0.0/9'), cidr('10.0.0.0/8')),
      [`${destination}[1]`, '10.0.0.0/8', 'a destination within 10.0.0.0/9, 10.128.0.0/9'],
    ],
    [
      'a network of the other family',
      { allowed: [{ cidr: '0.0.0.0/0' }] },
      egress(cidr('::/0')),
      [`${destination}[0]`, '::/0', 'a destination within 0.0.0.0/0'],
    ],
    [
      'services of an allowed namespace',
      { allowed: [{ service: 'shop/*' }] },
      egress(service('shop/web'), service('shop/*')),
    ],
    ['services where all are allowed', { allowed: [{ service: '*' }] }, egress(service('*'))],
    [
      'a service of a namespace that begins like an allowed one',
      { allowed: [{ service: 'shop/*' }] },
      egress(service('shop2/web')),
      [`${destination}[0]`, 'service shop2/web', 'a destination within service shop/*'],
    ],
    [
      'a namespace where one service is allowed',
      { allowed: [{ service: 'shop/db' }, { cidr: '0.0.0.0/0' }] },
      egress(service('shop/db'), service('shop/*')),
      [`${destination}[1]`, 'service shop/*', 'a destination within service shop/db, 0.0.0.0/0'],
    ],
    [
      'every port where some are allowed',
      { allowed: [{ service: '*', ports: [{ port: 1, endPort: 65_535 }] }] },
      egress(service('shop/web')),
      [`${destination}[0]`, 'service shop/web', 'a destination within service * ports 1-65535/tcp'],
    ],
    [
      'ports in allowed ranges',
      {
        allowed: [
          {
            cidr: '10.0.0.0/8',
            ports: [{ port: 80 }, { protocol: 'UDP', port: 50, endPort: 60 }],
          },
        ],
      },
      egress(cidr('10.0.0.0/8', tcp(80), { ...tcp(50, 60), protocol: Protocol.UDP })),
    ],
    [
      'a port of another protocol',
      { allowed: [{ cidr: '10.0.0.0/8', ports: [{ port: 53 }] }] },
      egress(cidr('10.0.0.0/8', tcp(53), { ...tcp(53), protocol: Protocol.UDP })),
      [
        `${destination}[0]`,
        '10.0.0.0/8 ports 53/tcp and 53/udp',
        'a destination within 10.0.0.0/8 port 53/tcp',
      ],
    ],
  ],
  RESOURCE_LIMIT: [
    [
      'limits at the bounds',
      { maxCpuMillis: 500, maxMemoryBytes: 1_048_576, maxPids: 10 },
      { resources: { limits: { cpuMillis: 500, memoryBytes: MIB, pids: 10 } } },
    ],
    [
      'a limit above the bound',
      { maxMemoryBytes: 1_048_576 },
      { resources: { limits: { memoryBytes: MIB + 1n } } },
      ['spec.resources.limits.memory_bytes', '1048577', 'at most 1048576'],
    ],
    [
      'no limit',
      { maxCpuMillis: 500 },
      {},
      ['spec.resources.limits.cpu_millis', 'no limit', 'at most 500'],
    ],
    [
      'a limit of 0, which is none',
      { maxCpuMillis: 500 },
      { resources: { limits: { cpuMillis: 0 } } },
      ['spec.resources.limits.cpu_millis', 'no limit', 'at most 500'],
    ],
    ['no request of storage', { maxStorageBytes: 5 }, {}],
    [
      'a request of bandwidth above the bound',
      { maxBandwidthBps: 5 },
      { resources: { requests: { bandwidthBps: 6n } } },
      ['spec.resources.requests.bandwidth_bps', '6', 'at most 5'],
    ],
  ],
  NODE_SELECTOR: [
    [
      'a required label',
      { required: { tier: ['web', 'api'] } },
      { placement: { nodeSelector: { tier: 'api' } } },
    ],
    [
      'a required label without a value',
      { required: { tier: [] } },
      {},
      ['spec.placement.node_selector["tier"]', 'no value', 'a value'],
    ],
    ['any value', { required: { tier: [] } }, { placement: { nodeSelector: { tier: 'x' } } }],
    [
      'another value',
      { required: { tier: ['web', 'api'] } },
      { placement: { nodeSelector: { tier: 'db' } } },
      ['spec.placement.node_selector["tier"]', '"db"', 'web, api'],
    ],
    ['a label of every object', { forbidden: ['constructor'] }, {}],
    [
      'a forbidden label',
      { forbidden: ['gpu'] },
      { placement: { nodeSelector: { gpu: 'yes' } } },
      ['spec.placement.node_selector["gpu"]', '"yes"', 'no value'],
    ],
  ],
  PRIVILEGED_MODE: [
    ['a container without privileges', {}, { security: { privileged: false } }],
    [
      'a privileged container',
      {},
      { security: { privileged: true } },
      ['spec.security.privileged', 'true', 'false'],
    ],
  ],
  HOST_NETWORK: [
    ['a network of its own', {}, { ports: [{ containerPort: 80, hostPort: 80 }] }],
    [
      'the network of the node',
      {},
      { network: { hostNetwork: true } },
      ['spec.network.host_network', 'true', 'false'],
    ],
    [
      'a port of the node',
      { forbidHostPorts: true },
      { ports: [{ containerPort: 80, hostPort: 8080 }] },
      ['spec.ports[0].host_port', '8080', 'no port of the node'],
    ],
    ['a port of the container', { forbidHostPorts: true }, { ports: [{ containerPort: 80 }] }],
  ],
  VOLUME_TYPE: [
    ['no volume', { allowed: [] }, {}],
    ['an allowed source', { allowed: ['EMPTY_DIR'] }, { volumes: [volume('emptyDir', {})] }],
    [
      'another source',
      { allowed: ['EMPTY_DIR'] },
      { volumes: [volume('named', { name: 'data' })] },
      ['spec.volumes[0]', 'NAMED', 'EMPTY_DIR'],
    ],
    [
      'a path below an allowed one',
      { allowed: ['HOST_PATH'], hostPaths: ['/srv'] },
      { volumes: [volume('hostPath', { path: '/srv/data' })] },
    ],
    [
      'a path that begins like an allowed one',
      { allowed: ['HOST_PATH'], hostPaths: ['/srv'] },
      { volumes: [volume('hostPath', { path: '/srv2' })] },
      ['spec.volumes[0].host_path.path', '"/srv2"', 'a path at or below /srv'],
    ],
    [
      'a path that leads out of an allowed one',
      { allowed: ['HOST_PATH'], hostPaths: ['/srv'] },
      { volumes: [volume('hostPath', { path: '/srv/../etc' })] },
      ['spec.volumes[0].host_path.path', '"/srv/../etc"', 'a path at or below /srv'],
    ],
    [
      'a writable path of the node',
      { allowed: ['HOST_PATH'], readOnlyHostPaths: true },
      { volumes: [volume('hostPath', { path: '/srv' })] },
      ['spec.volumes[0].read_only', 'false', 'true'],
    ],
  ],
  SECURITY_CONTEXT: [
    [
      'ids in range',
      { userIds: { min: 1, max: 5 }, groupIds: { min: 1, max: 5 } },
      { security: { runAsUser: 1n, runAsGroup: 5n, fsGroup: 2n, supplementalGroups: [3n] } },
    ],
    [
      'the user of the image',
      { userIds: { min: 1, max: 5 } },
      {},
      ['spec.security.run_as_user', 'not set (the image decides)', '1 to 5'],
    ],
    [
      'a user out of range',
      { userIds: { min: 1, max: 5 } },
      { security: { runAsUser: 6n } },
      ['spec.security.run_as_user', '6', '1 to 5'],
    ],
    [
      'an additional group out of range',
      { groupIds: { min: 1, max: 5 } },
      { security: { runAsUser: 1n, runAsGroup: 1n, supplementalGroups: [1n, 0n] } },
      ['spec.security.supplemental_groups[1]', '0', '1 to 5'],
    ],
    ['the default of new privileges', { requireNoNewPrivileges: true }, {}],
    [
      'new privileges',
      { requireNoNewPrivileges: true },
      { security: { noNewPrivileges: false } },
      ['spec.security.no_new_privileges', 'false', 'true'],
    ],
    [
      'a privileged container, which gains privileges by default',
      { requireNoNewPrivileges: true },
      { security: { privileged: true } },
      ['spec.security.privileged', 'true', 'false'],
    ],
  ],
  SECCOMP_PROFILE: [
    ['the default', { allowed: ['RuntimeDefault'] }, {}],
    [
      'no profile',
      { allowed: ['RuntimeDefault', 'localhost//p.json'] },
      { security: { seccompProfile: 'Unconfined' } },
      ['spec.security.seccomp_profile', 'Unconfined', 'RuntimeDefault, localhost//p.json'],
    ],
    [
      'a privileged container, which has no profile',
      { allowed: ['RuntimeDefault'] },
      { security: { privileged: true } },
      ['spec.security.seccomp_profile', 'Unconfined', 'RuntimeDefault'],
    ],
  ],
  APPARMOR_PROFILE: [
    [
      'an allowed profile',
      { allowed: ['localhost/web'] },
      { security: { apparmorProfile: 'localhost/web' } },
    ],
    ['no profile of its own', { allowed: ['NodeDefault'] }, {}],
    [
      'no profile where one is required',
      { allowed: ['RuntimeDefault'] },
      {},
      ['spec.security.apparmor_profile', 'NodeDefault', 'RuntimeDefault'],
    ],
    [
      'a privileged container without a profile',
      { allowed: ['NodeDefault'] },
      { security: { privileged: true } },
      ['spec.security.apparmor_profile', 'Unconfined', 'NodeDefault'],
    ],
  ],
  SELINUX_OPTIONS: [
    ['no options', {}, {}],
    [
      'an allowed type',
      { types: ['container_t'] },
      { security: { selinuxOptions: '::container_t:' } },
    ],
    [
      'another type',
      { types: ['container_t'] },
      { security: { selinuxOptions: '::spc_t:' } },
      ['spec.security.selinux_options', 'type "spc_t"', 'type container_t'],
    ],
    [
      'a user where none is allowed',
      { types: ['container_t'] },
      { security: { selinuxOptions: 'root::container_t:' } },
      ['spec.security.selinux_options', 'user "root"', 'an empty user'],
    ],
    [
      'a privileged container',
      {},
      { security: { privileged: true } },
      ['spec.security.selinux_options', 'a privileged container', 'a container with SELinux'],
    ],
  ],
  RUNTIME_CLASS: [
    ['an allowed class', { allowed: ['runsc'] }, { security: { runtimeClass: 'runsc' } }],
    ['the default', { allowed: ['runsc'], allowDefault: true }, {}],
    [
      'the default where a class is required',
      { allowed: ['runsc'] },
      {},
      ['spec.security.runtime_class', 'the default', 'runsc'],
    ],
    [
      'another class',
      { allowed: ['runsc'], allowDefault: true },
      { security: { runtimeClass: 'kata' } },
      ['spec.security.runtime_class', '"kata"', 'runsc, the default'],
    ],
  ],
  RUN_AS_NON_ROOT: [
    ['run_as_non_root', {}, { security: { runAsNonRoot: true } }],
    ['a user above 0', {}, { security: { runAsUser: 1n } }],
    [
      'root',
      {},
      { security: { runAsUser: 0n } },
      ['spec.security.run_as_user', '0', 'a user id above 0'],
    ],
    [
      'the user of the image',
      {},
      {},
      ['spec.security.run_as_non_root', 'false', 'true, or a run_as_user above 0'],
    ],
  ],
  READ_ONLY_ROOT_FS: [
    ['a read-only root', {}, { security: { readOnlyRootFilesystem: true } }],
    ['a writable root', {}, {}, ['spec.security.read_only_root_filesystem', 'false', 'true']],
  ],
  EXPRESSION: [
    ['an expression that is true', { expression: 'spec.replicas < 5' }, { replicas: 4 }],
    [
      'an expression that is false',
      { expression: 'spec.replicas < 5' },
      { replicas: 5 },
      ['spec', 'a workload for which the expression is false', 'spec.replicas < 5'],
    ],
    [
      'an expression with a message',
      { expression: 'spec.replicas < 5', message: 'fewer than 5 replicas' },
      { replicas: 5 },
      ['spec', 'a workload for which the expression is false', 'fewer than 5 replicas'],
    ],
  ],
};

function egress(...allowed: MessageInitShape<typeof EgressDestinationSchema>[]): Changes {
  return { network: { egress: { allowed } } };
}

function cidr(value: string, ...ports: MessageInitShape<typeof EgressPortSchema>[]) {
  return { destination: { case: 'cidr' as const, value }, ports };
}

function service(value: string) {
  return { destination: { case: 'service' as const, value } };
}

function tcp(port: number, endPort = 0) {
  return { port, endPort };
}

function volume(kind: 'emptyDir' | 'hostPath' | 'named', value: object) {
  return { name: 'data', mountPath: '/data', source: { case: kind, value } } as never;
}

describe.each(RULE_TYPES)('a rule of type %s', (type) => {
  const cases = CASES[type] as readonly Case<RuleType>[];

  it('has cases that it accepts and cases that it refuses', () => {
    const refused = cases.filter(([, , , finding]) => finding !== undefined).length;
    expect(refused).toBeGreaterThan(0);
    expect(cases.length).toBeGreaterThan(refused);
  });

  it.each(cases.map(([title, config, spec, finding]) => ({ title, config, spec, finding })))(
    'with $title',
    ({ config, spec, finding }) => {
      const findings = find(type, config, aSubject(spec));
      const [field, found, allowed] = finding ?? [];
      expect(findings).toEqual(finding === undefined ? [] : [{ field, found, allowed }]);
    },
  );
});

it.each([
  ['IMAGE_REGISTRY', { denied: ['docker.io'] }],
  ['CAPABILITIES', { deniedAdd: ['SYS_ADMIN'] }],
  ['EGRESS_DESTINATION', { allowed: [{ service: '*' }] }],
  ['PRIVILEGED_MODE', {}],
  ['HOST_NETWORK', {}],
  ['VOLUME_TYPE', { allowed: [] }],
  ['SECURITY_CONTEXT', { requireNoNewPrivileges: true }],
  ['SECCOMP_PROFILE', { allowed: ['Unconfined'] }],
  ['APPARMOR_PROFILE', { allowed: ['Unconfined'] }],
  ['SELINUX_OPTIONS', {}],
  ['RUNTIME_CLASS', { allowed: ['runsc'], allowDefault: true }],
  ['RUN_AS_NON_ROOT', {}],
  ['READ_ONLY_ROOT_FS', {}],
] as const)('a process violates %s, because it runs on the node itself', (type, config) => {
  expect(find(type, config, aProcess({ command: ['serve'] }))).toEqual([
    {
      field: 'spec.image',
      found: 'a process, which runs on the node itself',
      allowed: 'a container (a workload with an image)',
    },
  ]);
});
