import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import type { ContainerRequest, SecurityProfile } from '@cloudless/runtime';
import {
  NamespaceMode,
  Protocol,
  SecurityProfile_ProfileType,
  type ContainerConfig,
  type PodSandboxConfig,
  type SecurityProfile as CriProfile,
} from '../gen/runtime/v1/api_pb.js';
import { aRequest, arbRequest, ALL_CAPABILITIES } from '../testing/requests.js';
import { checkImageUser } from './config/security.js';
import { fromAnnotations } from './labels.js';
import { checkRequest, toContainerConfig, toSandboxConfig } from './request-config.js';

const owner = { cluster: 'c1', node: 'n1' };
const kernel = { swap: true, unifiedPids: true, memoryBytes: 1_000 };
const sandbox = (request: ContainerRequest): PodSandboxConfig =>
  toSandboxConfig(request, owner, '/logs');
const container = (
  request: ContainerRequest,
  pids: number | undefined = request.limits.pids,
): ContainerConfig =>
  toContainerConfig(request, owner, { imageRef: 'sha256:1', mounts: [], pids, kernel });
const toSecurity = (
  security: ContainerRequest['security'],
): NonNullable<NonNullable<ContainerConfig['linux']>['securityContext']> =>
  container(aRequest(security === undefined ? {} : { security })).linux!.securityContext!;

describe('toContainerSecurity', () => {
  it('drops three capabilities, forbids new privileges and masks kernel paths by default', () => {
    expect(toSecurity(undefined)).toMatchObject({
      privileged: false,
      noNewPrivs: true,
      readonlyRootfs: false,
      capabilities: { addCapabilities: [], dropCapabilities: ['AUDIT_WRITE', 'MKNOD', 'NET_RAW'] },
      seccomp: { profileType: SecurityProfile_ProfileType.RuntimeDefault },
      maskedPaths: expect.arrayContaining(['/proc/kcore']),
      readonlyPaths: expect.arrayContaining(['/proc/sys']),
    });
    const { runAsUser, apparmor, selinuxOptions } = toSecurity(undefined);
    expect([runAsUser, apparmor, selinuxOptions]).toEqual([undefined, undefined, undefined]);
  });

  it.each([
    {
      security: { capabilitiesAdd: ['NET_RAW'] },
      add: ['NET_RAW'],
      drop: ['AUDIT_WRITE', 'MKNOD'],
    },
    {
      security: { capabilitiesDrop: ['CHOWN', 'MKNOD'] },
      add: [],
      drop: ['AUDIT_WRITE', 'MKNOD', 'NET_RAW', 'CHOWN'],
    },
    {
      security: { capabilitiesAdd: ['CHOWN'], capabilitiesDrop: ['ALL'] },
      add: ['CHOWN'],
      drop: ['AUDIT_WRITE', 'MKNOD', 'NET_RAW', 'ALL'],
    },
    { security: { capabilitiesAdd: ['ALL'] }, add: ['ALL'], drop: [] },
  ])('adds $add and drops $drop for a request with $security', ({ security, add, drop }) => {
    expect(toSecurity(security).capabilities).toMatchObject({
      addCapabilities: add,
      dropCapabilities: drop,
    });
  });

  it('sets AppArmor in the new and the old field, and SELinux for sandbox and container', () => {
    const selinux = { user: 'u', role: 'r', type: 't', level: 's0:c1,c2' };
    const request = aRequest({
      security: { apparmor: { kind: 'localhost', reference: 'web' }, selinux },
    });
    expect(container(request).linux?.securityContext).toMatchObject({
      apparmor: { profileType: SecurityProfile_ProfileType.Localhost, localhostRef: 'web' },
      apparmorProfile: 'localhost/web',
      selinuxOptions: selinux,
    });
    expect(sandbox(request).linux?.securityContext?.selinuxOptions).toMatchObject(selinux);
  });

  it('makes a privileged container and its sandbox unrestricted', () => {
    expect(toSecurity({ privileged: true })).toMatchObject({
      ...{ privileged: true, noNewPrivs: false, maskedPaths: [], readonlyPaths: [] },
      seccomp: { profileType: SecurityProfile_ProfileType.Unconfined },
    });
    expect(toSecurity({ privileged: true }).capabilities).toBeUndefined();
    expect(
      sandbox(aRequest({ security: { privileged: true } })).linux?.securityContext?.privileged,
    ).toBe(true);
  });
});

describe('checkImageUser', () => {
  it.each([
    { user: { uid: { value: 1000n } }, expectedText: undefined },
    { user: { uid: { value: 0n } }, expectedText: 'image web:1 runs as root' },
    { user: {}, expectedText: 'image web:1 runs as root' },
    {
      user: { username: 'app' },
      expectedText:
        'image web:1 runs as "app", and the name does not show whether that user is root',
    },
  ])(
    'accepts or refuses the image user $user with the message: $expectedText',
    ({ user, expectedText }) => {
      const check = (): void => checkImageUser('web:1', user as never);
      if (expectedText === undefined) expect(check).not.toThrow();
      else
        expect(check).toThrow(
          `security.runAsNonRoot: ${expectedText}: set runAsUser to a number above 0`,
        );
    },
  );
});

describe('toResources', () => {
  it.each([
    {
      requests: { cpuMillis: 500 },
      limits: { cpuMillis: 2_000 },
      expected: { cpuShares: 512n, cpuQuota: 200_000n },
    },
    { requests: { cpuMillis: 0 }, limits: {}, expected: { cpuShares: 2n, cpuQuota: 0n } },
    { requests: {}, limits: { cpuMillis: 1 }, expected: { cpuShares: 0n, cpuQuota: 1_000n } },
    { requests: { cpuMillis: 1_000_000 }, limits: {}, expected: { cpuShares: 262_144n } },
    {
      requests: {},
      limits: { memoryBytes: 4096 },
      expected: { memoryLimitInBytes: 4096n, memorySwapLimitInBytes: 4096n },
    },
    { requests: { memoryBytes: 250 }, limits: {}, expected: { oomScoreAdj: 750n } },
    { requests: { memoryBytes: 0 }, limits: {}, expected: { oomScoreAdj: 999n } },
    { requests: { memoryBytes: 5_000 }, limits: {}, expected: { oomScoreAdj: 2n } },
    { requests: {}, limits: {}, expected: { oomScoreAdj: 0n } },
    { requests: {}, limits: { pids: 70 }, expected: { unified: { 'pids.max': '70' } } },
    { requests: {}, limits: { pids: 7 }, expected: { unified: { 'pids.max': '32' } } },
  ])(
    'converts the requests $requests and the limits $limits to $expected',
    ({ requests, limits, expected }) => {
      expect(container(aRequest({ requests, limits })).linux?.resources).toMatchObject(expected);
    },
  );

  it('omits limits of swap and processes that the kernel does not support', () => {
    const resources = toContainerConfig(aRequest({ limits: { memoryBytes: 4096 } }), owner, {
      ...{
        imageRef: 'x',
        mounts: [],
        pids: 9,
        kernel: { swap: false, unifiedPids: false, memoryBytes: 1_000 },
      },
    }).linux?.resources;
    expect(resources).toMatchObject({
      memoryLimitInBytes: 4096n,
      memorySwapLimitInBytes: 0n,
      unified: {},
    });
  });
});

describe('checkRequest', () => {
  const hostPath = {
    name: 'v',
    mountPath: '/v',
    readOnly: true,
    source: { kind: 'hostPath', path: '/srv' },
  } as const;
  const tcp = { name: 'http', port: 80, protocol: 'tcp' } as const;
  it.each([
    {
      parts: { containerId: 'ab' as never },
      kind: 'invalid',
      expectedText: 'containerId: must be 64 hex digits',
    },
    { parts: { image: '' }, kind: 'invalid', expectedText: 'image: must be set for a container' },
    {
      parts: { workingDir: 'srv' },
      kind: 'invalid',
      expectedText: 'workingDir: must be an absolute path',
    },
    {
      parts: { limits: { pids: 0 } },
      kind: 'invalid',
      expectedText: 'limits.pids: must be 1 or more',
    },
    {
      parts: { lease: { leaseMs: 1, graceMs: 1 } },
      kind: 'unimplemented',
      expectedText: 'lease: this node lacks the capability',
    },
    {
      parts: { security: { runAsGroup: 5 } },
      kind: 'invalid',
      expectedText: 'security.runAsGroup: a group needs a user',
    },
    {
      parts: { security: { supplementalGroups: [-1] } },
      kind: 'invalid',
      expectedText: 'security.supplementalGroups: must be 0 to',
    },
    {
      parts: { security: { fsGroup: 0.5 } },
      kind: 'invalid',
      expectedText: 'security.fsGroup: must be 0 to',
    },
    {
      parts: { security: { userName: 'a', runAsUser: 5 } },
      kind: 'invalid',
      expectedText: 'security.userName: runAsUser is set, too: set only one of them',
    },
    {
      parts: { security: { userName: 'a', runAsNonRoot: true } },
      ...{
        kind: 'invalid',
        expectedText: 'security.userName: runAsNonRoot cannot check a name: set runAsUser',
      },
    },
    {
      parts: { security: { userName: 'a' } },
      kind: 'unimplemented',
      expectedText: 'security.userName: this node lacks the capability security.username',
    },
    {
      parts: { security: { fsGroup: 5 } },
      kind: 'unimplemented',
      expectedText: 'security.fsGroup: this node lacks the capability security.groups',
    },
    {
      parts: { security: { runAsUser: -1 } },
      kind: 'invalid',
      expectedText: 'security.runAsUser: must be 0 to',
    },
    {
      parts: { security: { runAsUser: 0, runAsNonRoot: true } },
      kind: 'invalid',
      expectedText: 'security.runAsUser: 0 is root',
    },
    {
      parts: { security: { capabilitiesAdd: ['CAP_KILL'] } },
      kind: 'invalid',
      expectedText:
        'security.capabilitiesAdd: "CAP_KILL" is not a capability: use names such as NET_ADMIN',
    },
    {
      parts: { security: { capabilitiesAdd: ['KILL'], capabilitiesDrop: ['KILL'] } },
      kind: 'invalid',
      expectedText: 'KILL is both added and dropped',
    },
    {
      parts: { security: { capabilitiesAdd: ['ALL'], capabilitiesDrop: ['KILL'] } },
      kind: 'invalid',
      expectedText: 'ALL is added after',
    },
    {
      parts: { security: { seccomp: { kind: 'localhost', reference: 'web.json' } } },
      kind: 'invalid',
      expectedText: 'security.seccomp: must be the absolute path',
    },
    {
      parts: { security: { privileged: true, capabilitiesDrop: ['KILL'] } },
      kind: 'invalid',
      expectedText: 'security.capabilitiesDrop: has no effect in a privileged container',
    },
    {
      parts: { network: { hostNetwork: true, hostname: 'a' } },
      kind: 'invalid',
      expectedText: 'network.hostname: cannot be set in the network of the',
    },
    {
      parts: { network: { hostname: 'a b' } },
      kind: 'invalid',
      expectedText: 'network.hostname: "a b" is not a DNS label',
    },
    {
      parts: { network: { extraHosts: [{ ip: 'db', hostnames: ['db'] }] } },
      kind: 'invalid',
      expectedText: 'network.extraHosts: "db" is not an IP',
    },
    {
      parts: { network: { extraHosts: [{ ip: '::1', hostnames: [] }] } },
      kind: 'invalid',
      expectedText: 'network.extraHosts: ::1 needs a',
    },
    {
      parts: { network: { extraHosts: [{ ip: '::1', hostnames: ['db', 'a\nb'] }] } },
      kind: 'invalid',
      expectedText: 'network.extraHosts: "a\\nb" is not a host name',
    },
    {
      parts: {
        network: { extraHosts: [{ ip: '::1', hostnames: ['db'] }] },
        volumes: [{ ...hostPath, mountPath: '/etc//hosts' }],
      },
      kind: 'invalid',
      expectedText: 'network.extraHosts: a volume is mounted at /etc/hosts',
    },
    {
      parts: { network: { dnsServers: ['one'] } },
      kind: 'invalid',
      expectedText: 'network.dnsServers: "one" is not an IP address',
    },
    {
      parts: { network: { hostNetwork: true }, ports: [{ ...tcp, hostPort: 8080 }] },
      kind: 'invalid',
      expectedText:
        'ports.http: in the network of the machine host port 8080 cannot be forwarded to port 80',
    },
    {
      parts: {
        ports: [
          { ...tcp, hostPort: 8080 },
          { ...tcp, name: 'b', port: 81, hostPort: 8080 },
        ],
      },
      kind: 'invalid',
      expectedText: 'ports.b: host port 8080/tcp is requested twice',
    },
    {
      parts: { security: { privileged: true } },
      kind: 'unimplemented',
      expectedText:
        'security.privileged: this node lacks the capability security.privileged: its agent needs --allow-privileged',
    },
    {
      parts: { volumes: [hostPath] },
      kind: 'unimplemented',
      expectedText:
        'volumes.v: this node lacks the capability volumes.hostpath: its agent needs --allow-host-path and a directory',
    },
    {
      parts: { security: { apparmor: { kind: 'unconfined' } } },
      kind: 'unimplemented',
      expectedText: 'security.apparmor: this node lacks',
    },
    {
      parts: { security: { selinux: { user: '', role: '', type: 't', level: '' } } },
      kind: 'unimplemented',
      expectedText: 'security.selinux: this node lacks',
    },
    {
      parts: { security: { runtimeClass: 'kata' } },
      kind: 'unimplemented',
      expectedText: 'the capability runtime-class.kata',
    },
    {
      parts: { volumes: [{ ...hostPath, mountPath: '/a/../b' }] },
      kind: 'invalid',
      expectedText: 'must be an absolute path without ".."',
    },
    {
      parts: { shmSizeBytes: 0 },
      kind: 'invalid',
      expectedText: 'shmSizeBytes: must be 1 or more',
    },
    {
      parts: { shmSizeBytes: 1, volumes: [{ ...hostPath, mountPath: '/dev/shm' }] },
      ...{ kind: 'invalid', expectedText: 'volumes.v: /dev/shm is mounted twice' },
    },
    {
      parts: { shmSizeBytes: 1 },
      kind: 'unimplemented',
      expectedText: 'shmSizeBytes: this node lacks the capability container.shm',
    },
    {
      parts: { volumes: [{ ...hostPath, source: { kind: 'emptyDir', memory: {} } }] },
      ...{
        kind: 'unimplemented',
        expectedText: 'volumes.v: this node lacks the capability volumes.memory',
      },
    },
    {
      parts: { sysctls: { 'vm.swappiness': '1' } },
      kind: 'invalid',
      expectedText: 'sysctls.vm.swappiness: applies to the whole machine',
    },
    {
      parts: { sysctls: { 'net.core.somaxconn': '1' }, network: { hostNetwork: true } },
      ...{
        kind: 'invalid',
        expectedText: 'sysctls.net.core.somaxconn: applies to the network of the machine',
      },
    },
    {
      parts: { sysctls: { 'net.core.somaxconn': '1' } },
      ...{
        kind: 'unimplemented',
        expectedText:
          'the capability sysctl.net.core.somaxconn: its agent needs --allow-sysctl net.core.somaxconn',
      },
    },
    ...[
      {
        hostPath: 'fuse',
        containerPath: '/x',
        permissions: 'r',
        expectedText: 'both paths must be absolute',
      },
      {
        hostPath: '/dev/fuse',
        containerPath: '/x',
        permissions: '',
        expectedText: 'permissions must be some of r, w and m',
      },
      {
        hostPath: '/dev/fuse',
        containerPath: '/x',
        permissions: 'wr',
        expectedText: 'permissions must be some of r, w and m',
      },
    ].map(({ expectedText, ...device }) => ({
      parts: { devices: [device] },
      ...{ kind: 'invalid', expectedText: `devices.${device.hostPath}: ${expectedText}` },
    })),
    {
      parts: {
        devices: [1, 2].map(() => ({
          hostPath: '/dev/fuse',
          containerPath: '/x',
          permissions: 'r',
        })),
      },
      ...{ kind: 'invalid', expectedText: 'devices./dev/fuse: /x is used twice' },
    },
    {
      parts: { devices: [{ hostPath: '/dev/fuse', containerPath: '/x', permissions: 'r' }] },
      ...{
        kind: 'unimplemented',
        expectedText: 'the capability device./dev/fuse: its agent needs --allow-device /dev/fuse',
      },
    },
    {
      parts: { ulimits: [{ name: 'core', soft: 0.5, hard: 1 }] },
      ...{ kind: 'invalid', expectedText: 'ulimits.core: must be whole numbers from -1 up' },
    },
    {
      parts: { ulimits: [{ name: 'core', soft: -1, hard: 5 }] },
      ...{ kind: 'invalid', expectedText: 'ulimits.core: soft is above hard' },
    },
    {
      parts: { ulimits: [{ name: 'core', soft: 1, hard: -1 }] },
      ...{
        kind: 'unimplemented',
        expectedText: 'ulimits: this node lacks the capability container.ulimits',
      },
    },
    {
      parts: { imagePlatform: 'linux/arm' },
      kind: 'unimplemented',
      expectedText: 'imagePlatform: this node lacks the capability',
    },
    {
      parts: { init: true },
      kind: 'unimplemented',
      expectedText: 'init: this node lacks the capability container.init',
    },
    {
      parts: { network: { egress: [] } },
      kind: 'unimplemented',
      expectedText:
        'network.egress: this node lacks the capability network.egress: its agent needs',
    },
    {
      parts: { network: { egress: [], hostNetwork: true } },
      kind: 'invalid',
      expectedText: 'network.egress: cannot limit the network of the machine',
    },
    {
      parts: { network: { egress: [] }, security: { privileged: true } },
      kind: 'invalid',
      expectedText: 'network.egress: a privileged container evades the limit',
    },
    {
      parts: { network: { egress: [] }, security: { runtimeClass: 'runsc' } },
      kind: 'invalid',
      expectedText: 'network.egress: another runtime may have a network that evades the limit',
    },
    {
      parts: { network: { egress: [] }, security: { seccomp: { kind: 'unconfined' } } },
      kind: 'invalid',
      expectedText: 'network.egress: without a seccomp profile a container can use sockets',
    },
    ...['ALL', 'NET_ADMIN', 'NET_RAW', 'SYS_ADMIN', 'SYS_PTRACE', 'DAC_READ_SEARCH'].map(
      (name) => ({
        parts: { network: { egress: [] }, security: { capabilitiesAdd: ['CHOWN', name] } },
        kind: 'invalid',
        expectedText: `network.egress: a container with ${name} evades the limit`,
      }),
    ),
    {
      parts: { network: { egress: [{ network: '10.0.0.1/8' }] } },
      kind: 'invalid',
      expectedText: 'network.egress[0].network: 10.0.0.1/8 has host bits: use 10.0.0.0/8',
    },
    {
      parts: { limits: { pids: 1 } },
      kind: 'unimplemented',
      expectedText: 'limits.pids: this node lacks the capability limits.pids',
    },
    {
      parts: { limits: { cpuMillis: 1 } },
      kind: 'unimplemented',
      expectedText: 'limits.cpuMillis: this node lacks',
    },
    {
      parts: { limits: { memoryBytes: 1 } },
      kind: 'unimplemented',
      expectedText: 'limits.memoryBytes: this node lacks',
    },
  ])(
    'refuses an invalid request with the message: $expectedText',
    ({ parts, kind, expectedText }) => {
      let failure: unknown;
      try {
        checkRequest(aRequest(parts as Partial<ContainerRequest>), []);
      } catch (reason) {
        failure = reason;
      }
      expect(failure).toMatchObject({ kind, message: expect.stringContaining(expectedText) });
    },
  );
});

describe('toContainerConfig and toSandboxConfig', () => {
  it('convert every valid request so that all its fields can be read back', () => {
    fc.assert(
      fc.property(arbRequest, (request) => {
        checkRequest(request, ALL_CAPABILITIES);
        expect(readBack(sandbox(request), container(request), request)).toEqual(
          toComparable(request),
        );
      }),
    );
  });
});

const PROFILES = new Map<SecurityProfile_ProfileType, SecurityProfile['kind']>([
  [SecurityProfile_ProfileType.RuntimeDefault, 'runtimeDefault'],
  [SecurityProfile_ProfileType.Unconfined, 'unconfined'],
  [SecurityProfile_ProfileType.Localhost, 'localhost'],
]);

/**
 * Converts the configuration for the runtime to an object that is comparable with {@link
 * toComparable} of the request.
 */
function readBack(
  pod: PodSandboxConfig,
  { linux, ...config }: ContainerConfig,
  request: ContainerRequest,
): object {
  const { resources, securityContext: context } = linux!;
  const recorded = fromAnnotations(config.annotations);
  const toProfile = (profile: CriProfile | undefined): object | undefined =>
    profile && { kind: PROFILES.get(profile.profileType), reference: profile.localhostRef };
  return {
    command: config.command,
    args: config.args,
    env: Object.fromEntries(
      config.envs.map(({ key, value }) => [key, new TextDecoder().decode(value)]),
    ),
    workingDir: config.workingDir,
    labels: recorded.labels,
    ports: recorded.ports,
    mapped: pod.portMappings.map(({ protocol, containerPort, hostPort }) => [
      Protocol[protocol],
      containerPort,
      hostPort,
    ]),
    group: recorded.group,
    hostNetwork: [
      recorded.hostNetwork === true,
      context?.namespaceOptions?.network,
      pod.linux?.securityContext?.namespaceOptions?.network,
    ],
    init: [context, pod.linux?.securityContext].map(
      (each) => each?.namespaceOptions?.pid === NamespaceMode.POD,
    ),
    sysctls: pod.linux?.sysctls,
    devices: config.devices.map(({ hostPath, containerPath, permissions }) => ({
      hostPath,
      containerPath,
      permissions,
    })),
    hostname: pod.hostname,
    dns:
      pod.dnsConfig === undefined
        ? []
        : [pod.dnsConfig.servers, pod.dnsConfig.searches, pod.dnsConfig.options],
    quota: resources?.cpuQuota,
    memoryBytes: Number(resources?.memoryLimitInBytes),
    pids: resources?.unified['pids.max'],
    hasShares: resources?.cpuShares !== 0n,
    ids: [context?.runAsUser?.value, context?.runAsGroup?.value].map((value) =>
      value === undefined ? undefined : Number(value),
    ),
    userName: context?.runAsUsername,
    groups: context?.supplementalGroups.map(Number),
    readOnlyRootFilesystem: context?.readonlyRootfs,
    noNewPrivileges: context?.noNewPrivs,
    privileged: [context?.privileged, pod.linux?.securityContext?.privileged],
    capabilitiesAdd: context?.capabilities?.addCapabilities ?? [],
    areDropped: (request.security?.capabilitiesDrop ?? []).every((each) =>
      context?.capabilities?.dropCapabilities.includes(each),
    ),
    seccomp: toProfile(context?.seccomp),
    apparmor: toProfile(context?.apparmor),
    selinux: context?.selinuxOptions?.level,
  };
}

/** Returns the configuration that a request must give, with all defaults. */
function toComparable({ security = {}, network = {}, ...request }: ContainerRequest): object {
  const {
    hostNetwork = false,
    hostname = hostNetwork ? '' : request.containerId.slice(0, 12),
    dnsServers = [],
    dnsSearches = [],
    dnsOptions = [],
  } = network;
  const { cpuMillis, memoryBytes = 0, pids } = request.limits;
  const { privileged = false } = security;
  const toProfile = (profile: SecurityProfile | undefined): object | undefined =>
    profile && { reference: '', ...profile };
  const mode = hostNetwork ? NamespaceMode.NODE : NamespaceMode.POD;
  const hasGroup =
    request.shmSizeBytes !== undefined ||
    (request.volumes ?? []).some(({ source }) => source.kind === 'emptyDir');
  return {
    ...{
      command: request.command,
      args: request.args,
      env: request.env,
      workingDir: request.workingDir ?? '',
    },
    ...{ labels: request.labels, ports: request.ports, hostname, memoryBytes },
    dns: dnsServers.length === 0 ? [] : [dnsServers, dnsSearches, dnsOptions],
    mapped: request.ports.flatMap(({ protocol, port, hostPort }) =>
      hostPort === undefined || hostNetwork ? [] : [[protocol.toUpperCase(), port, hostPort]],
    ),
    group: hasGroup ? (request.group ?? request.containerId) : undefined,
    hostNetwork: [hostNetwork, mode, mode],
    sysctls: {
      ...(hostNetwork ? {} : { 'net.ipv4.ip_unprivileged_port_start': '0' }),
      ...request.sysctls,
    },
    devices: request.devices ?? [],
    init: [request.init ?? true, request.init ?? true],
    quota: cpuMillis === undefined ? 0n : BigInt(Math.max(1_000, cpuMillis * 100)),
    pids: pids === undefined ? undefined : String(Math.max(32, pids)),
    hasShares: request.requests?.cpuMillis !== undefined,
    ids: [security.runAsUser, security.runAsGroup],
    userName: security.userName ?? '',
    groups: [
      ...(security.supplementalGroups ?? []),
      ...(security.fsGroup === undefined ? [] : [security.fsGroup]),
    ],
    readOnlyRootFilesystem: security.readOnlyRootFilesystem ?? false,
    noNewPrivileges: security.noNewPrivileges ?? !privileged,
    privileged: [privileged, privileged],
    capabilitiesAdd: security.capabilitiesAdd ?? [],
    areDropped: true,
    seccomp: toProfile(security.seccomp ?? { kind: privileged ? 'unconfined' : 'runtimeDefault' }),
    apparmor: toProfile(security.apparmor),
    selinux: security.selinux?.level,
  };
}
