import fc from 'fast-check';
import { toContainerId } from '@cloudless/base';
import type {
  ContainerRequest,
  NetworkRequest,
  SecurityProfile,
  SecurityRequest,
  VolumeRequest,
} from '@cloudless/runtime';

/** All capabilities that a request of {@link arbRequest} may need. */
export const ALL_CAPABILITIES: readonly string[] = [
  ...['limits.cpu', 'limits.memory', 'limits.pids', 'volumes.hostpath'],
  ...[
    'container.init',
    'container.shm',
    'volumes.memory',
    'security.groups',
    'security.username',
    'sysctl.kernel.sem',
    'device./dev/fuse',
    'container.ulimits',
    'network.egress',
  ],
  ...[
    'security.apparmor',
    'security.selinux',
    'security.privileged',
    'runtime-class.runsc',
    'runtime-class.kata',
  ],
];

/** Returns a valid request. Override the fields that the test is about. */
export function aRequest(overrides: Partial<ContainerRequest> = {}): ContainerRequest {
  return {
    containerId: toContainerId('ab'.repeat(32)),
    labels: { app: 'web' },
    image: 'nginx:alpine',
    ...{ command: [], args: [], env: {}, ports: [], limits: {} },
    ...overrides,
  };
}

const name = fc.stringMatching(/^[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?$/);
const port = fc.integer({ min: 1, max: 65_535 });
const id = fc.integer({ min: 0, max: 4_294_967_294 });
const file = fc
  .array(name, { minLength: 1, maxLength: 3 })
  .map((steps) => `/srv/${steps.join('/')}`);

/** Generates records in which each of these fields is present or absent. */
function aPartial<Value extends object>(parts: {
  readonly [Key in keyof Value]: fc.Arbitrary<Value[Key]>;
}): fc.Arbitrary<Partial<Value>> {
  return fc.record(parts as never, { requiredKeys: [] }) as fc.Arbitrary<Partial<Value>>;
}

const profile: fc.Arbitrary<SecurityProfile> = fc.oneof(
  fc.constant({ kind: 'runtimeDefault' as const }),
  fc.constant({ kind: 'unconfined' as const }),
  file.map((reference) => ({ kind: 'localhost' as const, reference })),
);
const CAPABILITIES = ['CHOWN', 'NET_ADMIN', 'NET_RAW', 'SYS_ADMIN', 'MKNOD', 'KILL'];

/** Generates capability lists in which each capability is added, dropped or in neither list. */
const capabilities: fc.Arbitrary<Pick<SecurityRequest, 'capabilitiesAdd' | 'capabilitiesDrop'>> =
  fc.oneof(
    fc.constant({}),
    fc.constant({ capabilitiesAdd: ['ALL'] }),
    fc
      .record({
        places: fc.array(fc.integer({ min: 0, max: 2 }), { minLength: 6, maxLength: 6 }),
        all: fc.boolean(),
      })
      .map(({ places, all }) => ({
        capabilitiesAdd: CAPABILITIES.filter((_, index) => places[index] === 1),
        capabilitiesDrop: [
          ...CAPABILITIES.filter((_, index) => places[index] === 2),
          ...(all ? ['ALL'] : []),
        ],
      })),
  );

const user: fc.Arbitrary<SecurityRequest> = fc.oneof(
  fc.constant({}),
  id.map((runAsUser) => ({ runAsUser, runAsNonRoot: runAsUser > 0 })),
  fc.record({ runAsUser: id, runAsGroup: id }),
  fc.record({ userName: name, fsGroup: id }),
  fc.record({ supplementalGroups: fc.uniqueArray(id, { minLength: 1, maxLength: 3 }) }),
);
const selinuxPart = fc.constantFrom('', 'system_u', 'container_t', 's0:c1,c2');
const selinux = fc.record({
  user: selinuxPart,
  role: selinuxPart,
  type: selinuxPart,
  level: selinuxPart,
});
/** Generates settings of a container that is not privileged. */
const unprivileged: fc.Arbitrary<SecurityRequest> = fc
  .tuple(
    user,
    capabilities,
    aPartial<SecurityRequest>({ seccomp: profile, apparmor: profile, selinux } as never),
  )
  .map((parts) => Object.assign({}, ...parts) as SecurityRequest);
const security: fc.Arbitrary<SecurityRequest> = fc
  .tuple(
    fc.oneof({ arbitrary: unprivileged, weight: 4 }, fc.constant({ privileged: true })),
    aPartial<SecurityRequest>({
      readOnlyRootFilesystem: fc.boolean(),
      noNewPrivileges: fc.boolean(),
      runtimeClass: fc.constantFrom('runsc', 'kata'),
    } as never),
  )
  .map((parts) => Object.assign({}, ...parts) as SecurityRequest);

const source: fc.Arbitrary<VolumeRequest['source']> = fc.oneof(
  fc.constant({ kind: 'emptyDir' as const }),
  fc.constant({ kind: 'emptyDir' as const, memory: { sizeBytes: 4096 } }),
  file.map((path) => ({ kind: 'hostPath' as const, path })),
  fc.record({ kind: fc.constant('named' as const), namespace: name, workload: name, name }),
);
const volumes = fc.uniqueArray(
  fc.record({ name, mountPath: file, readOnly: fc.boolean(), source }),
  {
    maxLength: 4,
    selector: (volume) => volume.name,
  },
);
/** Generates volumes whose mount paths differ. */
const distinctVolumes = volumes.filter(
  (all) => new Set(all.map(({ mountPath }) => mountPath)).size === all.length,
);

const ports = fc
  .uniqueArray(port, { maxLength: 4 })
  .chain((numbers) =>
    fc.tuple(
      ...numbers.map((number) =>
        fc.record({ number: fc.constant(number), udp: fc.boolean(), host: fc.boolean() }),
      ),
    ),
  )
  .map((all) =>
    all.map(({ number, udp, host }, index) => ({
      ...{ name: `p${index}`, port: number, protocol: udp ? ('udp' as const) : ('tcp' as const) },
      ...(host ? { hostPort: number } : {}),
    })),
  );
const dnsServers = fc.array(fc.oneof(fc.ipV4(), fc.ipV6()), { maxLength: 3 });
const dnsSearches = fc.array(fc.domain(), { maxLength: 3 });
const dnsOptions = fc.constantFrom([], ['ndots:2']);
const hostnames = fc.array(fc.domain(), { minLength: 1, maxLength: 3 });
const extraHosts = fc.array(fc.record({ ip: fc.oneof(fc.ipV4(), fc.ipV6()), hostnames }), {
  maxLength: 3,
});
const network: fc.Arbitrary<NetworkRequest> = fc.oneof(
  aPartial<NetworkRequest>({
    ...{ hostname: name, dnsServers, dnsSearches, dnsOptions, extraHosts },
  } as never),
  fc.record({ hostNetwork: fc.constant(true), dnsServers, extraHosts }),
);

/** Generates any request that a node with all capabilities accepts. */
export const arbRequest: fc.Arbitrary<ContainerRequest> = fc
  .record(
    {
      labels: fc.dictionary(name, fc.string(), { maxKeys: 3 }),
      command: fc.array(fc.string(), { maxLength: 3 }),
      args: fc.array(fc.string(), { maxLength: 3 }),
      env: fc.dictionary(name, fc.string({ unit: 'grapheme' }), { maxKeys: 3 }),
      workingDir: file,
      ports,
      limits: aPartial({
        cpuMillis: fc.integer({ min: 1, max: 64_000 }),
        memoryBytes: fc.integer({ min: 1, max: 2 ** 40 }),
        pids: port,
      }),
      requests: aPartial({ cpuMillis: fc.integer({ min: 0, max: 64_000 }) }),
      group: name,
      volumes: distinctVolumes,
      security,
      network,
      init: fc.boolean(),
      shmSizeBytes: port,
      devices: fc.constant([{ hostPath: '/dev/fuse', containerPath: '/dev/x', permissions: 'rw' }]),
      sysctls: fc.constant({ 'kernel.sem': '1' }),
    },
    { requiredKeys: ['labels', 'command', 'args', 'env', 'ports', 'limits'] },
  )
  .map((parts) => aRequest(parts as Partial<ContainerRequest>));
