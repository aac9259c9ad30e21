import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { definedFields } from '@cloudless/base';
import {
  ImagePull_Policy as Policy,
  NetworkSchema,
  Port_Protocol as Protocol,
  WorkloadSpecSchema,
  checkSpec,
  validateMessage,
  type PortSchema,
  type SecurityContextSchema,
  type VolumeSchema,
} from '../index.js';

type Init = MessageInitShape<typeof WorkloadSpecSchema>;
type SecurityInit = MessageInitShape<typeof SecurityContextSchema>;
type VolumeInit = MessageInitShape<typeof VolumeSchema>;
type PortInit = MessageInitShape<typeof PortSchema>;
type NetworkInit = MessageInitShape<typeof NetworkSchema>;

/** Returns the violations that `checkSpec` reports, as texts. */
function problemsOf(init: Init): readonly string[] {
  try {
    checkSpec(create(WorkloadSpecSchema, init));
    return [];
  } catch (reason) {
    expect(reason).toMatchObject({ kind: 'invalid' });
    return (reason as { violations: { field: string; message: string }[] }).violations.map(
      ({ field, message }) => `${field}: ${message}`,
    );
  }
}
const problemsOfImage = (init: Init): readonly string[] =>
  problemsOf({ image: 'nginx:alpine', ...init });

describe('checkSpec for fields that need a container', () => {
  it.each<{ field: string; spec: Init }>([
    { field: 'spec.security', spec: { security: { runAsNonRoot: true } } },
    { field: 'spec.security', spec: { security: { noNewPrivileges: false } } },
    { field: 'spec.volumes', spec: { volumes: [{}] } },
    { field: 'spec.network', spec: { network: { hostname: 'a' } } },
    { field: 'spec.image_pull', spec: { imagePull: { policy: Policy.NEVER } } },
    { field: 'spec.image_pull', spec: { imagePull: { secret: 'x' } } },
    { field: 'spec.image_pull', spec: { imagePull: { platform: 'linux/amd64' } } },
    { field: 'spec.init', spec: { init: false } },
    { field: 'spec.shm_size_bytes', spec: { shmSizeBytes: 1n } },
    { field: 'spec.identity', spec: { identity: {} } },
    { field: 'spec.ulimits', spec: { ulimits: [{ name: 'nofile', soft: 5n }] } },
    { field: 'spec.sysctls', spec: { sysctls: { 'net.ipv4.tcp_fin_timeout': '10' } } },
    { field: 'spec.devices', spec: { devices: [{ hostPath: '/dev/fuse' }] } },
    {
      field: 'spec.ports[1].host_port',
      spec: { ports: [{ containerPort: 1 }, { containerPort: 2, hostPort: 2 }] },
    },
  ])('rejects $field for a process', ({ field, spec }) => {
    expect(problemsOf({ command: ['serve'], ...spec })).toEqual([
      `${field}: needs a container: set image`,
    ]);
  });

  it('accepts empty container settings for a process', () => {
    expect(
      problemsOf({ command: ['serve'], security: {}, volumes: [], network: {}, imagePull: {} }),
    ).toEqual([]);
  });

  it.each(Object.values(Policy).filter((value) => typeof value === 'number'))(
    'accepts the image pull policy with number %i',
    (policy) => {
      expect(problemsOfImage({ imagePull: { policy } })).toEqual([]);
    },
  );
});

describe('checkSpec for the security context', () => {
  const unknown =
    'is not a Linux capability; use a name such as NET_ADMIN or CAP_NET_ADMIN, or ALL';
  const seccomp =
    'must be RuntimeDefault, Unconfined or localhost/ and the absolute path of a profile, such as localhost//etc/seccomp/web.json';
  const apparmor =
    'must be RuntimeDefault, Unconfined or localhost/ and the name of a profile, such as localhost/web';
  const selinux =
    'must be user:role:type:level, where some parts may be empty, such as ::container_t:s0:c1,c2';
  const noEffect =
    'has no effect in a privileged container; remove it, or list the needed privileges instead of privileged';
  const allAdded =
    'ALL is added after the drop, so nothing would be dropped; list the capabilities to add';

  it.each<{ security: SecurityInit; expected: string }>([
    {
      security: { runAsGroup: 5n },
      expected:
        'run_as_group: a group needs a user: set spec.security.run_as_user or spec.security.user',
    },
    {
      security: { user: 'a', runAsUser: 5n },
      expected: 'user: cannot be combined with run_as_user; remove one of them',
    },
    {
      security: { user: 'app', runAsNonRoot: true },
      expected: 'user: run_as_non_root cannot verify a user name; set run_as_user to a number',
    },
    ...['1000', 'a b', 'app:app', '-a', 'a\n'].map((user) => ({
      security: { user },
      expected: `user: ${JSON.stringify(user)} is not a user name such as nginx; use run_as_user for a numeric id`,
    })),
    {
      security: { runAsNonRoot: true, runAsUser: 0n },
      expected: 'run_as_user: 0 is root, which run_as_non_root forbids',
    },
    {
      security: { capabilitiesAdd: ['NET_ADMIN', 'NET'] },
      expected: `capabilities_add[1]: "NET" ${unknown}`,
    },
    { security: { capabilitiesAdd: ['CAP_'] }, expected: `capabilities_add[0]: "CAP_" ${unknown}` },
    {
      security: { capabilitiesDrop: ['CAP_ALL'] },
      expected: `capabilities_drop[0]: "CAP_ALL" ${unknown}`,
    },
    { security: { capabilitiesDrop: [''] }, expected: `capabilities_drop[0]: "" ${unknown}` },
    {
      security: { capabilitiesAdd: ['KILL', 'cap_chown'], capabilitiesDrop: ['CHOWN'] },
      expected: 'capabilities_add[1]: CHOWN is both added and dropped; remove one of them',
    },
    {
      security: { capabilitiesAdd: ['ALL'], capabilitiesDrop: ['all'] },
      expected: 'capabilities_add[0]: ALL is both added and dropped; remove one of them',
    },
    {
      security: { capabilitiesAdd: ['all'], capabilitiesDrop: ['CHOWN'] },
      expected: `capabilities_add[0]: ${allAdded}`,
    },
    { security: { seccompProfile: 'runtime/default' }, expected: `seccomp_profile: ${seccomp}` },
    { security: { seccompProfile: 'localhost/' }, expected: `seccomp_profile: ${seccomp}` },
    {
      security: { seccompProfile: 'localhost/web.json' },
      expected: `seccomp_profile: ${seccomp}; the path must be an absolute path`,
    },
    {
      security: { seccompProfile: 'localhost//a/../b' },
      expected: `seccomp_profile: ${seccomp}; the path must be written as "/b", without ".", ".." and needless slashes`,
    },
    { security: { apparmorProfile: 'web' }, expected: `apparmor_profile: ${apparmor}` },
    { security: { apparmorProfile: 'localhost/a b' }, expected: `apparmor_profile: ${apparmor}` },
    { security: { selinuxOptions: 'container_t' }, expected: `selinux_options: ${selinux}` },
    { security: { selinuxOptions: ':::' }, expected: `selinux_options: ${selinux}` },
    { security: { selinuxOptions: 'a:b:c d:e' }, expected: `selinux_options: ${selinux}` },
    {
      security: { privileged: true, capabilitiesDrop: ['CHOWN'] },
      expected: `capabilities_drop: ${noEffect}`,
    },
    {
      security: { privileged: true, seccompProfile: 'RuntimeDefault' },
      expected: `seccomp_profile: ${noEffect}`,
    },
    {
      security: { privileged: true, seccompProfile: 'localhost//a' },
      expected: `seccomp_profile: ${noEffect}`,
    },
    {
      security: { privileged: true, apparmorProfile: 'RuntimeDefault' },
      expected: `apparmor_profile: ${noEffect}`,
    },
    {
      security: { privileged: true, selinuxOptions: '::a:' },
      expected: `selinux_options: ${noEffect}`,
    },
    {
      security: { privileged: true, noNewPrivileges: true },
      expected: `no_new_privileges: ${noEffect}`,
    },
  ])('rejects the security context $security', ({ security, expected }) => {
    expect(problemsOfImage({ security })).toEqual([`spec.security.${expected}`]);
  });

  it.each<{ security: SecurityInit }>([
    { security: { runAsUser: 0n, runAsGroup: 0n } },
    { security: { runAsNonRoot: true, runAsUser: 1n } },
    { security: { runAsNonRoot: true } },
    { security: { capabilitiesAdd: ['net_admin', 'CAP_BPF'], capabilitiesDrop: ['ALL'] } },
    { security: { capabilitiesAdd: ['ALL'] } },
    {
      security: {
        seccompProfile: 'localhost//etc/seccomp/web.json',
        apparmorProfile: 'localhost/web',
      },
    },
    { security: { seccompProfile: 'Unconfined', apparmorProfile: 'RuntimeDefault' } },
    { security: { selinuxOptions: '::container_t:s0:c1,c2' } },
    { security: { selinuxOptions: 'u:r:t:l' } },
    {
      security: {
        privileged: true,
        runAsUser: 5n,
        readOnlyRootFilesystem: true,
        capabilitiesAdd: ['CHOWN'],
      },
    },
    {
      security: {
        privileged: true,
        seccompProfile: 'Unconfined',
        apparmorProfile: 'localhost/web',
        noNewPrivileges: false,
      },
    },
  ])('accepts the security context $security', ({ security }) => {
    expect(problemsOfImage({ security })).toEqual([]);
  });
});

describe('checkSpec for ulimits', () => {
  const names = 'core, memlock, msgqueue, nice, nofile, nproc, rtprio, sigpending, stack';
  it.each<{ ulimits: { name: string; soft?: bigint; hard?: bigint }[]; expected: string[] }>([
    {
      ulimits: [
        { name: 'core' },
        { name: 'memlock', soft: -1n },
        { name: 'stack', soft: 5n, hard: -1n },
      ],
      expected: [],
    },
    { ulimits: [{ name: 'nofile', soft: 1000n, hard: 1000n }], expected: [] },
    {
      ulimits: [{ name: 'files' }],
      expected: [`[0].name: "files" is not a limit; expected one of ${names}`],
    },
    {
      ulimits: [{ name: '' }],
      expected: [`[0].name: "" is not a limit; expected one of ${names}`],
    },
    {
      ulimits: [{ name: 'core' }, { name: 'core', soft: 1n }],
      expected: ['[1].name: "core" is used twice'],
    },
    { ulimits: [{ name: 'core', soft: 6n, hard: 5n }], expected: ['[0].soft: 6 is above hard, 5'] },
    {
      ulimits: [{ name: 'core', soft: -1n, hard: 5n }],
      expected: ['[0].soft: no limit is above hard, 5'],
    },
    {
      ulimits: [{ name: 'nofile', soft: 255n, hard: 300n }],
      expected: ['[0].soft: 255 is below 256, which the start of a container needs'],
    },
    {
      ulimits: [{ name: 'core', soft: 9_007_199_254_740_992n }],
      expected: ['[0].soft: 9007199254740992 is above 9007199254740991; -1 is no limit'],
    },
  ])('reports $expected for the ulimits $ulimits', ({ ulimits, expected }) => {
    expect(problemsOfImage({ ulimits })).toEqual(expected.map((text) => `spec.ulimits${text}`));
  });
});

describe('checkSpec for devices', () => {
  it.each([
    {
      devices: [
        { hostPath: '/dev/fuse' },
        { hostPath: '/dev/fuse', containerPath: '/dev/other', permissions: 'rw' },
      ],
      expected: [],
    },
    {
      devices: [{ hostPath: 'fuse' }],
      expected: ['[0].host_path: "fuse" must be an absolute path'],
    },
    {
      devices: [{ hostPath: '/dev/fuse', containerPath: '/dev/../x' }],
      expected: [
        '[0].container_path: "/dev/../x" must be written as "/x", without ".", ".." and needless slashes',
      ],
    },
    {
      devices: [{ hostPath: '/dev/fuse' }, { hostPath: '/dev/kvm', containerPath: '/dev/fuse' }],
      expected: ['[1].container_path: "/dev/fuse" is used twice'],
    },
  ])('reports $expected for the devices $devices', ({ devices, expected }) => {
    expect(problemsOfImage({ devices })).toEqual(expected.map((text) => `spec.devices${text}`));
  });
});

describe('checkSpec for the platform of an image', () => {
  const message =
    'must be linux/ and one of amd64, arm64, arm, 386, ppc64le, s390x, riscv64, loong64; the image determines the variant, such as v8';
  it.each([
    { platform: 'linux/amd64', violations: 0 },
    { platform: 'amd64', violations: 1 },
    { platform: 'linux/arm64/v8', violations: 1 },
    { platform: 'windows/amd64', violations: 1 },
  ])('reports $violations violations of the platform $platform', ({ platform, violations }) => {
    expect(problemsOfImage({ imagePull: { platform } })).toEqual(
      violations === 0 ? [] : [`spec.image_pull.platform: ${JSON.stringify(platform)} ${message}`],
    );
  });
});

describe('checkSpec for sysctls', () => {
  const affectsNode =
    'affects the whole node; a container can set kernel.msg…, kernel.sem, kernel.shm…, fs.mqueue.… and net.…';
  it.each<{ sysctls: Record<string, string>; network?: NetworkInit; expected: string[] }>([
    {
      sysctls: {
        'kernel.shmmax': '1',
        'kernel.sem': '1 2',
        'fs.mqueue.msg_max': '1',
        'net.core.somaxconn': '1',
      },
      expected: [],
    },
    { sysctls: { 'vm.swappiness': '1' }, expected: [`["vm.swappiness"]: ${affectsNode}`] },
    { sysctls: { 'kernel.hostname': 'x' }, expected: [`["kernel.hostname"]: ${affectsNode}`] },
    {
      sysctls: { 'net.core.somaxconn': '1', 'kernel.sem': '1' },
      network: { hostNetwork: true },
      expected: [
        '["net.core.somaxconn"]: with host_network it affects the node; remove one of them',
      ],
    },
  ])(
    'reports $expected for the sysctls $sysctls with network $network',
    ({ sysctls, network = {}, expected }) => {
      expect(problemsOfImage({ sysctls, network })).toEqual(
        expected.map((text) => `spec.sysctls${text}`),
      );
    },
  );
});

describe('checkSpec for volumes', () => {
  const at = (mountPath: string, more: VolumeInit = {}): VolumeInit => ({
    name: `v${mountPath.length}`,
    mountPath,
    source: { case: 'emptyDir', value: {} },
    ...more,
  });
  const notNormalized = (text: string): string =>
    `must be written as "${text}", without ".", ".." and needless slashes`;
  const reserved = 'is reserved for the container runtime; choose another directory';

  it('rejects a volume at /dev/shm together with shm_size_bytes', () => {
    const violation =
      'spec.volumes[0].mount_path: "/dev/shm" is created by shm_size_bytes; remove one of them';
    expect(problemsOfImage({ volumes: [at('/dev/shm')], shmSizeBytes: 1n })).toEqual([violation]);
    expect(problemsOfImage({ volumes: [at('/dev/shm')] })).toEqual([]);
  });

  it.each(['/var/run/cloudless/identity', '/var/run/cloudless/identity/tls.key'])(
    'rejects a volume at %s only together with identity',
    (mountPath) => {
      const violation = `spec.volumes[0].mount_path: "${mountPath}" is used by spec.identity; choose another directory`;
      expect(problemsOfImage({ volumes: [at(mountPath)], identity: {} })).toEqual([violation]);
      expect(problemsOfImage({ volumes: [at(mountPath)] })).toEqual([]);
      expect(problemsOfImage({ volumes: [at('/var/run/cloudless')], identity: {} })).toEqual([]);
    },
  );

  it('rejects a volume with the name of the volume of identity', () => {
    const volumes = [at('/a', { name: 'cloudless-identity' })];
    expect(problemsOfImage({ volumes, identity: {} })).toEqual([
      'spec.volumes[0].name: "cloudless-identity" is used by spec.identity; choose another name',
    ]);
    expect(problemsOfImage({ volumes })).toEqual([]);
  });

  it.each<{ name: string; volumes: VolumeInit[]; expected: string }>([
    {
      name: 'two volumes with the same name',
      volumes: [at('/a', { name: 'x' }), at('/b', { name: 'x' })],
      expected: '[1].name: "x" is used twice',
    },
    {
      name: 'two volumes with the same mount path',
      volumes: [at('/a', { name: 'x' }), at('/a', { name: 'y' })],
      expected: '[1].mount_path: "/a" is used twice',
    },
    {
      name: 'a relative mount path',
      volumes: [at('data')],
      expected: '[0].mount_path: "data" must be an absolute path',
    },
    {
      name: 'a mount path with ..',
      volumes: [at('/a/../b')],
      expected: `[0].mount_path: "/a/../b" ${notNormalized('/b')}`,
    },
    {
      name: 'a mount path with .',
      volumes: [at('/a/./b')],
      expected: `[0].mount_path: "/a/./b" ${notNormalized('/a/b')}`,
    },
    {
      name: 'a mount path with two slashes',
      volumes: [at('//a')],
      expected: `[0].mount_path: "//a" ${notNormalized('/a')}`,
    },
    {
      name: 'a mount path with a slash at its end',
      volumes: [at('/a/')],
      expected: `[0].mount_path: "/a/" ${notNormalized('/a')}`,
    },
    {
      name: 'a NUL character in a mount path',
      volumes: [at('/a\0')],
      expected: '[0].mount_path: "/a\\u0000" must not contain control characters',
    },
    ...['/', '/proc', '/proc/sys', '/sys', '/sys/fs', '/dev'].map((mountPath) => ({
      name: `the reserved mount path ${mountPath}`,
      volumes: [at(mountPath)],
      expected: `[0].mount_path: "${mountPath}" ${reserved}`,
    })),
    {
      name: 'a volume without a source',
      volumes: [{ name: 'x', mountPath: '/a' }],
      expected: '[0]: one of empty_dir, host_path and named is required',
    },
    {
      name: 'a relative host path',
      volumes: [at('/a', { source: { case: 'hostPath', value: { path: 'etc' } } })],
      expected: '[0].host_path.path: "etc" must be an absolute path',
    },
    {
      name: 'a host path with ..',
      volumes: [at('/a', { source: { case: 'hostPath', value: { path: '/srv/..' } } })],
      expected: `[0].host_path.path: "/srv/.." ${notNormalized('/')}`,
    },
  ])('rejects $name', ({ volumes, expected }) => {
    expect(problemsOfImage({ volumes })).toEqual([`spec.volumes${expected}`]);
  });

  it('accepts every kind of source, nested volumes, and mount paths below /dev', () => {
    const volumes: VolumeInit[] = [
      { name: 'a', mountPath: '/data', source: { case: 'named', value: { name: 'data' } } },
      { name: 'b', mountPath: '/data/cache', source: { case: 'emptyDir', value: {} } },
      {
        name: 'c',
        mountPath: '/host',
        readOnly: true,
        source: { case: 'hostPath', value: { path: '/' } },
      },
      { name: 'd', mountPath: '/dev/shm', source: { case: 'emptyDir', value: {} } },
      {
        name: 'e',
        mountPath: '/system',
        source: { case: 'hostPath', value: { path: '/sys/fs/bpf' } },
      },
      { name: 'f', mountPath: '/process', source: { case: 'emptyDir', value: {} } },
    ];
    expect(problemsOfImage({ volumes })).toEqual([]);
  });
});

describe('checkSpec for the network', () => {
  it.each<{
    name: string;
    network?: NetworkInit;
    ports?: PortInit[];
    volumes?: VolumeInit[];
    expected: string;
  }>([
    {
      name: 'two ports with the same host port',
      ports: [
        { containerPort: 80, hostPort: 8080 },
        { containerPort: 81, hostPort: 8080 },
      ],
      expected: 'ports[1].host_port: 8080/tcp is used twice',
    },
    {
      name: 'a host port that is not the container port, with host_network',
      network: { hostNetwork: true },
      ports: [{ containerPort: 80, hostPort: 8080 }],
      expected:
        'ports[0].host_port: 8080 is not container_port 80: with host_network both are the same port; remove host_port',
    },
    {
      name: 'a hostname with host_network',
      network: { hostNetwork: true, hostname: 'web' },
      expected:
        'network.hostname: with host_network the hostname is that of the node; remove one of them',
    },
    {
      name: 'a DNS server that is a name',
      network: { dnsServers: ['10.0.0.1', 'dns.example'] },
      expected: 'network.dns_servers[1]: "dns.example" is not an IP address',
    },
    {
      name: 'an incomplete IP address',
      network: { dnsServers: ['10.0.0'] },
      expected: 'network.dns_servers[0]: "10.0.0" is not an IP address',
    },
    {
      name: 'an extra host whose address is a name',
      network: {
        extraHosts: [
          { ip: '10.0.0.1', hostnames: ['db'] },
          { ip: 'db', hostnames: ['cache'] },
        ],
      },
      expected: 'network.extra_hosts[1].ip: "db" is not an IP address',
    },
    {
      name: 'extra hosts together with a volume at /etc/hosts',
      network: { extraHosts: [{ ip: '10.0.0.1', hostnames: ['db'] }] },
      volumes: [
        {
          name: 'hosts',
          mountPath: '/etc/hosts',
          source: { case: 'hostPath', value: { path: '/srv/hosts' } },
        },
      ],
      expected:
        'network.extra_hosts: volume "hosts" is mounted at /etc/hosts and replaces the file with these entries; remove one of them',
    },
  ])('rejects $name', ({ network, ports, volumes, expected }) => {
    const init: Init = {
      ...definedFields({ network, ports, volumes }),
    };
    expect(problemsOfImage(init)).toEqual([`spec.${expected}`]);
  });

  it.each([
    { name: 'an empty list of hostnames', hostnames: [], expected: 'hostnames: must not be empty' },
    {
      name: 'a line end in a hostname',
      hostnames: ['db\n10.0.0.9 other'],
      expected: 'hostnames[0]: ',
    },
    {
      name: 'two names in one hostname',
      hostnames: ['db cache'],
      expected: 'hostnames[0]: must be a host name: letters, digits',
    },
    { name: 'a hostname that is a comment', hostnames: ['#'], expected: 'hostnames[0]: ' },
    { name: 'an empty label in a hostname', hostnames: ['a..b'], expected: 'hostnames[0]: ' },
  ])('rejects $name of an extra host', ({ hostnames, expected }) => {
    const network = create(NetworkSchema, { extraHosts: [{ ip: '10.0.0.1', hostnames }] });
    expect(() => validateMessage(NetworkSchema, network)).toThrow(`extra_hosts[0].${expected}`);
  });

  it('accepts extra hosts with all kinds of addresses and names, also with host_network', () => {
    const extraHosts = [
      { ip: '10.0.0.1', hostnames: ['db', 'db.internal', 'Old_Name', '1st.example'] },
      { ip: 'fd00::1', hostnames: ['db'] },
    ];
    expect(problemsOfImage({ network: { extraHosts } })).toEqual([]);
    validateMessage(NetworkSchema, create(NetworkSchema, { extraHosts }));
    expect(problemsOfImage({ network: { hostNetwork: true, extraHosts } })).toEqual([]);
  });

  it('accepts one host port with two protocols, and IPv4 and IPv6 addresses', () => {
    const ports = [
      { containerPort: 53, hostPort: 53 },
      { containerPort: 53, hostPort: 53, name: 'udp', protocol: Protocol.UDP },
    ];
    expect(
      problemsOfImage({
        ports,
        network: { hostname: 'web', dnsServers: ['10.0.0.1', 'fd00::53'] },
      }),
    ).toEqual([]);
    expect(problemsOfImage({ ports, network: { hostNetwork: true } })).toEqual([]);
  });
});

describe('checkSpec for resource limits', () => {
  it('rejects pids in the requests and accepts pids in the limits', () => {
    expect(problemsOfImage({ resources: { limits: { pids: 5 } } })).toEqual([]);
    expect(problemsOfImage({ resources: { requests: { pids: 5 } } })).toEqual([
      'spec.resources.requests.pids: pids cannot be requested, only limited: set spec.resources.limits.pids',
    ]);
  });

  it('rejects a CPU limit below 10 of a container, which the kernel cannot enforce', () => {
    const limited = (cpuMillis: number): Init => ({
      resources: { requests: { cpuMillis: 0 }, limits: { cpuMillis } },
    });
    expect([
      problemsOfImage(limited(10)),
      problemsOfImage(limited(0)),
      problemsOf({ command: ['a'], ...limited(9) }),
    ]).toEqual([[], [], []]);
    expect(problemsOfImage(limited(9))).toEqual([
      'spec.resources.limits.cpu_millis: 9 is below 10, the smallest limit that the kernel can enforce',
    ]);
  });
});
