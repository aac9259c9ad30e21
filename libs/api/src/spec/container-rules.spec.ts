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
const ofImage = (init: Init): readonly string[] => problemsOf({ image: 'nginx:alpine', ...init });

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
    'an image is pulled by policy %i',
    (policy) => {
      expect(ofImage({ imagePull: { policy } })).toEqual([]);
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

  it.each<{ security: SecurityInit; says: string }>([
    {
      security: { runAsGroup: 5n },
      says: 'run_as_group: a group needs a user: set spec.security.run_as_user or spec.security.user',
    },
    {
      security: { user: 'a', runAsUser: 5n },
      says: 'user: cannot be combined with run_as_user; remove one of them',
    },
    {
      security: { user: 'app', runAsNonRoot: true },
      says: 'user: run_as_non_root cannot verify a user name; set run_as_user to a number',
    },
    ...['1000', 'a b', 'app:app', '-a', 'a\n'].map((user) => ({
      security: { user },
      says: `user: ${JSON.stringify(user)} is not a user name such as nginx; use run_as_user for a numeric id`,
    })),
    {
      security: { runAsNonRoot: true, runAsUser: 0n },
      says: 'run_as_user: 0 is root, which run_as_non_root forbids',
    },
    {
      security: { capabilitiesAdd: ['NET_ADMIN', 'NET'] },
      says: `capabilities_add[1]: "NET" ${unknown}`,
    },
    { security: { capabilitiesAdd: ['CAP_'] }, says: `capabilities_add[0]: "CAP_" ${unknown}` },
    {
      security: { capabilitiesDrop: ['CAP_ALL'] },
      says: `capabilities_drop[0]: "CAP_ALL" ${unknown}`,
    },
    { security: { capabilitiesDrop: [''] }, says: `capabilities_drop[0]: "" ${unknown}` },
    {
      security: { capabilitiesAdd: ['KILL', 'cap_chown'], capabilitiesDrop: ['CHOWN'] },
      says: 'capabilities_add[1]: CHOWN is both added and dropped; remove one of them',
    },
    {
      security: { capabilitiesAdd: ['ALL'], capabilitiesDrop: ['all'] },
      says: 'capabilities_add[0]: ALL is both added and dropped; remove one of them',
    },
    {
      security: { capabilitiesAdd: ['all'], capabilitiesDrop: ['CHOWN'] },
      says: `capabilities_add[0]: ${allAdded}`,
    },
    { security: { seccompProfile: 'runtime/default' }, says: `seccomp_profile: ${seccomp}` },
    { security: { seccompProfile: 'localhost/' }, says: `seccomp_profile: ${seccomp}` },
    {
      security: { seccompProfile: 'localhost/web.json' },
      says: `seccomp_profile: ${seccomp}; the path must be an absolute path`,
    },
    {
      security: { seccompProfile: 'localhost//a/../b' },
      says: `seccomp_profile: ${seccomp}; the path must be written as "/b", without ".", ".." and needless slashes`,
    },
    { security: { apparmorProfile: 'web' }, says: `apparmor_profile: ${apparmor}` },
    { security: { apparmorProfile: 'localhost/a b' }, says: `apparmor_profile: ${apparmor}` },
    { security: { selinuxOptions: 'container_t' }, says: `selinux_options: ${selinux}` },
    { security: { selinuxOptions: ':::' }, says: `selinux_options: ${selinux}` },
    { security: { selinuxOptions: 'a:b:c d:e' }, says: `selinux_options: ${selinux}` },
    {
      security: { privileged: true, capabilitiesDrop: ['CHOWN'] },
      says: `capabilities_drop: ${noEffect}`,
    },
    {
      security: { privileged: true, seccompProfile: 'RuntimeDefault' },
      says: `seccomp_profile: ${noEffect}`,
    },
    {
      security: { privileged: true, seccompProfile: 'localhost//a' },
      says: `seccomp_profile: ${noEffect}`,
    },
    {
      security: { privileged: true, apparmorProfile: 'RuntimeDefault' },
      says: `apparmor_profile: ${noEffect}`,
    },
    {
      security: { privileged: true, selinuxOptions: '::a:' },
      says: `selinux_options: ${noEffect}`,
    },
    {
      security: { privileged: true, noNewPrivileges: true },
      says: `no_new_privileges: ${noEffect}`,
    },
  ])('rejects $security', ({ security, says }) => {
    expect(ofImage({ security })).toEqual([`spec.security.${says}`]);
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
  ])('accepts $security', ({ security }) => {
    expect(ofImage({ security })).toEqual([]);
  });
});

describe('checkSpec for ulimits', () => {
  const names = 'core, memlock, msgqueue, nice, nofile, nproc, rtprio, sigpending, stack';
  it.each<{ ulimits: { name: string; soft?: bigint; hard?: bigint }[]; says: string[] }>([
    {
      ulimits: [
        { name: 'core' },
        { name: 'memlock', soft: -1n },
        { name: 'stack', soft: 5n, hard: -1n },
      ],
      says: [],
    },
    { ulimits: [{ name: 'nofile', soft: 1000n, hard: 1000n }], says: [] },
    {
      ulimits: [{ name: 'files' }],
      says: [`[0].name: "files" is not a limit; expected one of ${names}`],
    },
    { ulimits: [{ name: '' }], says: [`[0].name: "" is not a limit; expected one of ${names}`] },
    {
      ulimits: [{ name: 'core' }, { name: 'core', soft: 1n }],
      says: ['[1].name: "core" is used twice'],
    },
    { ulimits: [{ name: 'core', soft: 6n, hard: 5n }], says: ['[0].soft: 6 is above hard, 5'] },
    {
      ulimits: [{ name: 'core', soft: -1n, hard: 5n }],
      says: ['[0].soft: no limit is above hard, 5'],
    },
    {
      ulimits: [{ name: 'nofile', soft: 255n, hard: 300n }],
      says: ['[0].soft: 255 is below 256, which the start of a container needs'],
    },
    {
      ulimits: [{ name: 'core', soft: 9_007_199_254_740_992n }],
      says: ['[0].soft: 9007199254740992 is above 9007199254740991; -1 is no limit'],
    },
  ])('reports the violations of $ulimits', ({ ulimits, says }) => {
    expect(ofImage({ ulimits })).toEqual(says.map((text) => `spec.ulimits${text}`));
  });
});

describe('checkSpec for devices', () => {
  it.each([
    {
      devices: [
        { hostPath: '/dev/fuse' },
        { hostPath: '/dev/fuse', containerPath: '/dev/other', permissions: 'rw' },
      ],
      says: [],
    },
    { devices: [{ hostPath: 'fuse' }], says: ['[0].host_path: "fuse" must be an absolute path'] },
    {
      devices: [{ hostPath: '/dev/fuse', containerPath: '/dev/../x' }],
      says: [
        '[0].container_path: "/dev/../x" must be written as "/x", without ".", ".." and needless slashes',
      ],
    },
    {
      devices: [{ hostPath: '/dev/fuse' }, { hostPath: '/dev/kvm', containerPath: '/dev/fuse' }],
      says: ['[1].container_path: "/dev/fuse" is used twice'],
    },
  ])('reports the violations of $devices', ({ devices, says }) => {
    expect(ofImage({ devices })).toEqual(says.map((text) => `spec.devices${text}`));
  });
});

describe('checkSpec for the platform of an image', () => {
  const says =
    'must be linux/ and one of amd64, arm64, arm, 386, ppc64le, s390x, riscv64, loong64; the image determines the variant, such as v8';
  it.each([
    { platform: 'linux/amd64', problem: undefined },
    { platform: 'amd64', problem: says },
    { platform: 'linux/arm64/v8', problem: says },
    { platform: 'windows/amd64', problem: says },
  ])('reports the violation of $platform, if any', ({ platform, problem }) => {
    expect(ofImage({ imagePull: { platform } })).toEqual(
      problem === undefined
        ? []
        : [`spec.image_pull.platform: ${JSON.stringify(platform)} ${problem}`],
    );
  });
});

describe('checkSpec for sysctls', () => {
  const whole =
    'affects the whole node; a container can set kernel.msg…, kernel.sem, kernel.shm…, fs.mqueue.… and net.…';
  it.each<{ sysctls: Record<string, string>; network?: NetworkInit; says: string[] }>([
    {
      sysctls: {
        'kernel.shmmax': '1',
        'kernel.sem': '1 2',
        'fs.mqueue.msg_max': '1',
        'net.core.somaxconn': '1',
      },
      says: [],
    },
    { sysctls: { 'vm.swappiness': '1' }, says: [`["vm.swappiness"]: ${whole}`] },
    { sysctls: { 'kernel.hostname': 'x' }, says: [`["kernel.hostname"]: ${whole}`] },
    {
      sysctls: { 'net.core.somaxconn': '1', 'kernel.sem': '1' },
      network: { hostNetwork: true },
      says: ['["net.core.somaxconn"]: with host_network it affects the node; remove one of them'],
    },
  ])(
    'reports the violations of $sysctls with network $network',
    ({ sysctls, network = {}, says }) => {
      expect(ofImage({ sysctls, network })).toEqual(says.map((text) => `spec.sysctls${text}`));
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
  const straight = (text: string): string =>
    `must be written as "${text}", without ".", ".." and needless slashes`;
  const owned = 'is reserved for the container runtime; choose another directory';

  it('rejects a volume at /dev/shm together with shm_size_bytes', () => {
    const says =
      'spec.volumes[0].mount_path: "/dev/shm" is created by shm_size_bytes; remove one of them';
    expect(ofImage({ volumes: [at('/dev/shm')], shmSizeBytes: 1n })).toEqual([says]);
    expect(ofImage({ volumes: [at('/dev/shm')] })).toEqual([]);
  });

  it.each<{ name: string; volumes: VolumeInit[]; says: string }>([
    {
      name: 'a name twice',
      volumes: [at('/a', { name: 'x' }), at('/b', { name: 'x' })],
      says: '[1].name: "x" is used twice',
    },
    {
      name: 'a place twice',
      volumes: [at('/a', { name: 'x' }), at('/a', { name: 'y' })],
      says: '[1].mount_path: "/a" is used twice',
    },
    {
      name: 'a relative place',
      volumes: [at('data')],
      says: '[0].mount_path: "data" must be an absolute path',
    },
    {
      name: 'a place with ..',
      volumes: [at('/a/../b')],
      says: `[0].mount_path: "/a/../b" ${straight('/b')}`,
    },
    {
      name: 'a place with .',
      volumes: [at('/a/./b')],
      says: `[0].mount_path: "/a/./b" ${straight('/a/b')}`,
    },
    {
      name: 'doubled slashes',
      volumes: [at('//a')],
      says: `[0].mount_path: "//a" ${straight('/a')}`,
    },
    {
      name: 'a slash at the end',
      volumes: [at('/a/')],
      says: `[0].mount_path: "/a/" ${straight('/a')}`,
    },
    {
      name: 'a NUL',
      volumes: [at('/a\0')],
      says: '[0].mount_path: "/a\\u0000" must not contain control characters',
    },
    ...['/', '/proc', '/proc/sys', '/sys', '/sys/fs', '/dev'].map((place) => ({
      name: place,
      volumes: [at(place)],
      says: `[0].mount_path: "${place}" ${owned}`,
    })),
    {
      name: 'no source',
      volumes: [{ name: 'x', mountPath: '/a' }],
      says: '[0]: one of empty_dir, host_path and named is required',
    },
    {
      name: 'a relative path of the node',
      volumes: [at('/a', { source: { case: 'hostPath', value: { path: 'etc' } } })],
      says: '[0].host_path.path: "etc" must be an absolute path',
    },
    {
      name: 'a path of the node with ..',
      volumes: [at('/a', { source: { case: 'hostPath', value: { path: '/srv/..' } } })],
      says: `[0].host_path.path: "/srv/.." ${straight('/')}`,
    },
  ])('rejects $name', ({ volumes, says }) => {
    expect(ofImage({ volumes })).toEqual([`spec.volumes${says}`]);
  });

  it('accepts every source, nested volumes, and mount paths below /dev', () => {
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
    expect(ofImage({ volumes })).toEqual([]);
  });
});

describe('checkSpec for the network', () => {
  it.each<{
    name: string;
    network?: NetworkInit;
    ports?: PortInit[];
    volumes?: VolumeInit[];
    says: string;
  }>([
    {
      name: 'a host port twice',
      ports: [
        { containerPort: 80, hostPort: 8080 },
        { containerPort: 81, hostPort: 8080 },
      ],
      says: 'ports[1].host_port: 8080/tcp is used twice',
    },
    {
      name: 'another host port in the network of the node',
      network: { hostNetwork: true },
      ports: [{ containerPort: 80, hostPort: 8080 }],
      says: 'ports[0].host_port: 8080 is not container_port 80: with host_network both are the same port; remove host_port',
    },
    {
      name: 'a name in the network of the node',
      network: { hostNetwork: true, hostname: 'web' },
      says: 'network.hostname: with host_network the hostname is that of the node; remove one of them',
    },
    {
      name: 'a DNS server by name',
      network: { dnsServers: ['10.0.0.1', 'dns.example'] },
      says: 'network.dns_servers[1]: "dns.example" is not an IP address',
    },
    {
      name: 'half an address',
      network: { dnsServers: ['10.0.0'] },
      says: 'network.dns_servers[0]: "10.0.0" is not an IP address',
    },
    {
      name: 'an extra host whose address is a name',
      network: {
        extraHosts: [
          { ip: '10.0.0.1', hostnames: ['db'] },
          { ip: 'db', hostnames: ['cache'] },
        ],
      },
      says: 'network.extra_hosts[1].ip: "db" is not an IP address',
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
      says: 'network.extra_hosts: volume "hosts" is mounted at /etc/hosts and replaces the file with these entries; remove one of them',
    },
  ])('refuses $name', ({ network, ports, volumes, says }) => {
    const init: Init = {
      ...definedFields({ network, ports, volumes }),
    };
    expect(ofImage(init)).toEqual([`spec.${says}`]);
  });

  it.each([
    { name: 'no host name', hostnames: [], says: 'hostnames: must not be empty' },
    {
      name: 'a line end in a host name',
      hostnames: ['db\n10.0.0.9 other'],
      says: 'hostnames[0]: ',
    },
    {
      name: 'two names in one',
      hostnames: ['db cache'],
      says: 'hostnames[0]: must be a host name: letters, digits',
    },
    { name: 'a comment', hostnames: ['#'], says: 'hostnames[0]: ' },
    { name: 'an empty label', hostnames: ['a..b'], says: 'hostnames[0]: ' },
  ])('rejects $name of an extra host', ({ hostnames, says }) => {
    const network = create(NetworkSchema, { extraHosts: [{ ip: '10.0.0.1', hostnames }] });
    expect(() => validateMessage(NetworkSchema, network)).toThrow(`extra_hosts[0].${says}`);
  });

  it('accepts extra hosts with all kinds of addresses and names, also with host_network', () => {
    const extraHosts = [
      { ip: '10.0.0.1', hostnames: ['db', 'db.internal', 'Old_Name', '1st.example'] },
      { ip: 'fd00::1', hostnames: ['db'] },
    ];
    expect(ofImage({ network: { extraHosts } })).toEqual([]);
    validateMessage(NetworkSchema, create(NetworkSchema, { extraHosts }));
    expect(ofImage({ network: { hostNetwork: true, extraHosts } })).toEqual([]);
  });

  it('accepts one host port with two protocols, and IPv4 and IPv6 addresses', () => {
    const ports = [
      { containerPort: 53, hostPort: 53 },
      { containerPort: 53, hostPort: 53, name: 'udp', protocol: Protocol.UDP },
    ];
    expect(
      ofImage({ ports, network: { hostname: 'web', dnsServers: ['10.0.0.1', 'fd00::53'] } }),
    ).toEqual([]);
    expect(ofImage({ ports, network: { hostNetwork: true } })).toEqual([]);
  });
});

describe('checkSpec for resource limits', () => {
  it('rejects pids in the requests', () => {
    expect(ofImage({ resources: { limits: { pids: 5 } } })).toEqual([]);
    expect(ofImage({ resources: { requests: { pids: 5 } } })).toEqual([
      'spec.resources.requests.pids: pids cannot be requested, only limited: set spec.resources.limits.pids',
    ]);
  });

  it('rejects a CPU limit that the kernel cannot enforce', () => {
    const limited = (cpuMillis: number): Init => ({
      resources: { requests: { cpuMillis: 0 }, limits: { cpuMillis } },
    });
    expect([
      ofImage(limited(10)),
      ofImage(limited(0)),
      problemsOf({ command: ['a'], ...limited(9) }),
    ]).toEqual([[], [], []]);
    expect(ofImage(limited(9))).toEqual([
      'spec.resources.limits.cpu_millis: 9 is below 10, the smallest limit that the kernel can enforce',
    ]);
  });
});
