import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { toContainerId } from '@cloudless/base';
import {
  ImagePull_Policy,
  Port_Protocol,
  Volume_EmptyDir_Medium as Medium,
  WorkloadSpecSchema,
  updateSpec,
  type SecurityContextSchema,
  type WorkloadSpec,
} from '@cloudless/api';
import { listSpecLeaves } from '@cloudless/api/testing';
import { aStartOrder, aStopOrder } from '../testing/index.js';
import { fromContainerLabels } from './container-labels.js';
import { toContainerRequest } from './to-container-request.js';

const container = {
  clusterId: 'cluster-1',
  nodeId: 'node-1',
  containerId: toContainerId('a'.repeat(64)),
};

describe('toContainerRequest with identity', () => {
  const order = aStartOrder({
    spec: create(WorkloadSpecSchema, {
      image: 'a',
      identity: {},
      env: { CLOUDLESS_IDENTITY_DIR: '/elsewhere' },
      volumes: [{ name: 'run', mountPath: '/var/run', source: { case: 'emptyDir', value: {} } }],
    }),
  });

  it('mounts the directory read-only after the volumes and names the directory in the environment', () => {
    const identity = { path: '/data/identities/web-1', inMemory: true };
    const { env, volumes } = toContainerRequest(order, { ...container, identity });
    expect(env['CLOUDLESS_IDENTITY_DIR']).toBe('/var/run/cloudless/identity');
    expect(volumes).toEqual([
      expect.objectContaining({ name: 'run' }),
      {
        name: 'cloudless-identity',
        mountPath: '/var/run/cloudless/identity',
        readOnly: true,
        source: { kind: 'prepared', ...identity },
      },
    ]);
  });

  it('fails without a directory and names the missing capability', () => {
    expect(() => toContainerRequest(order, container)).toThrow(
      expect.objectContaining({
        kind: 'unimplemented',
        message: 'spec.identity: this node lacks the capability identity.workload',
      }),
    );
  });

  it('sets no directory for a spec without identity', () => {
    const identity = { path: '/data/identities/web-1', inMemory: true };
    const { env, volumes } = toContainerRequest(aStartOrder(), { ...container, identity });
    expect(env).not.toHaveProperty('CLOUDLESS_IDENTITY_DIR');
    expect(volumes).toBeUndefined();
  });
});

describe('toContainerRequest', () => {
  it('contains every field of the spec that concerns a container', () => {
    const spec = create(WorkloadSpecSchema, {
      image: 'nginx:alpine',
      command: ['server', '-v'],
      args: ['--port', '80'],
      env: { A: '1' },
      workingDir: '/srv',
      ports: [
        { containerPort: 80, protocol: Port_Protocol.TCP },
        { name: 'dns', containerPort: 53, protocol: Port_Protocol.UDP },
      ],
      resources: {
        requests: { cpuMillis: 7 },
        limits: { cpuMillis: 500, memoryBytes: 1_000n, pids: 50 },
      },
      labels: { team: 'red' },
      annotations: { note: 'x y' },
    });
    const request = toContainerRequest(aStartOrder({ spec }), container);
    expect(request).toMatchObject({
      containerId: container.containerId,
      image: 'nginx:alpine',
      command: ['server', '-v'],
      args: ['--port', '80'],
      env: { A: '1' },
      workingDir: '/srv',
      ports: [
        { name: 'port-80', port: 80, protocol: 'tcp' },
        { name: 'dns', port: 53, protocol: 'udp' },
      ],
      limits: { cpuMillis: 500, memoryBytes: 1_000, pids: 50 },
      requests: { cpuMillis: 7, memoryBytes: 1_000 },
      imagePull: 'ifNotPresent',
      group: 'web-1',
    });
    expect(request.labels).toMatchObject({
      'cloudless.label/team': 'red',
      'cloudless.annotation/note': 'x y',
    });
    expect(fromContainerLabels(request.labels)).toEqual({
      clusterId: 'cluster-1',
      nodeId: 'node-1',
      replicaId: 'web-1',
      workloadUid: 'web',
      namespace: 'default',
      workload: 'web',
      version: 1,
      slot: 0,
      orderRevision: 10n,
      restarts: 0,
    });
  });

  it.each<{ name: string; spec: MessageInitShape<typeof WorkloadSpecSchema> }>([
    { name: 'absent', spec: {} },
    { name: 'zero', spec: { resources: { limits: { cpuMillis: 0, memoryBytes: 0n } } } },
  ])(
    'sets no limit when the limits are $name, and no image or working directory when the spec has none',
    ({ spec }) => {
      const request = toContainerRequest(aStartOrder({ spec }), container);
      expect({
        limits: request.limits,
        image: 'image' in request,
        workingDir: 'workingDir' in request,
      }).toEqual({
        limits: {},
        image: false,
        workingDir: false,
      });
    },
  );

  it('replaces user variables that have the names of Cloudless variables', () => {
    const env = { CLOUDLESS_REPLICA_ID: 'forged', CLOUDLESS_OTHER: 'kept' };
    const request = toContainerRequest(aStartOrder({ spec: { env } }), {
      clusterId: 'c1',
      nodeId: 'n1',
      containerId: toContainerId('a'.repeat(64)),
    });
    expect(request.env).toMatchObject({ CLOUDLESS_REPLICA_ID: 'web-1', CLOUDLESS_OTHER: 'kept' });
  });

  it('uses the default requests when the spec has none, and the CPU limit when only a limit is set', () => {
    const requests = { cpuMillis: 100, memoryBytes: 64 * 1024 * 1024 };
    expect(
      toContainerRequest(aStartOrder({ spec: { command: ['a'] } }), container).requests,
    ).toEqual(requests);
    const limited = { command: ['a'], resources: { limits: { cpuMillis: 50 } } };
    expect(toContainerRequest(aStartOrder({ spec: limited }), container).requests).toEqual({
      ...requests,
      cpuMillis: 50,
    });
  });

  it('sets no container-only field when the spec has no image', () => {
    const request = toContainerRequest(aStartOrder({ spec: { command: ['serve'] } }), container);
    expect(Object.keys(request)).not.toEqual(expect.arrayContaining(['imagePull']));
    expect([request.volumes, request.security, request.network]).toEqual([
      undefined,
      undefined,
      undefined,
    ]);
  });

  it.each([
    { policy: ImagePull_Policy.IF_NOT_PRESENT, imagePull: 'ifNotPresent' },
    { policy: ImagePull_Policy.ALWAYS, imagePull: 'always' },
    { policy: ImagePull_Policy.NEVER, imagePull: 'never' },
  ])('converts the pull policy $imagePull', ({ policy, imagePull }) => {
    expect(
      toContainerRequest(aStartOrder({ spec: { image: 'a', imagePull: { policy } } }), container),
    ).toMatchObject({ imagePull });
  });

  it('sets the sources of volumes and the owner of named volumes', () => {
    const spec = create(WorkloadSpecSchema, {
      image: 'a',
      volumes: [
        { name: 'one', mountPath: '/one', source: { case: 'emptyDir', value: {} } },
        {
          name: 'two',
          mountPath: '/two',
          readOnly: true,
          source: { case: 'hostPath', value: { path: '/srv' } },
        },
        { name: 'three', mountPath: '/three', source: { case: 'named', value: { name: 'data' } } },
      ],
    });
    expect(toContainerRequest(aStartOrder({ spec }), container).volumes).toEqual([
      { name: 'one', mountPath: '/one', readOnly: false, source: { kind: 'emptyDir' } },
      {
        name: 'two',
        mountPath: '/two',
        readOnly: true,
        source: { kind: 'hostPath', path: '/srv' },
      },
      {
        ...{ name: 'three', mountPath: '/three', readOnly: false },
        source: { kind: 'named', namespace: 'default', workload: 'web', name: 'data' },
      },
    ]);
  });

  it.each([
    {
      name: 'to the size limit of the volume when the volume has a size limit',
      volume: { sizeLimitBytes: 5n },
      limit: 7n,
      memory: { sizeBytes: 5 },
    },
    {
      name: 'to the memory limit of the container when the volume has no size limit',
      volume: {},
      limit: 7n,
      memory: { sizeBytes: 7 },
    },
    { name: 'to no value when there is no limit', volume: {}, limit: 0n, memory: {} },
  ])('sets the size of an in-memory directory $name', ({ volume, limit, memory }) => {
    const spec = create(WorkloadSpecSchema, {
      ...{ image: 'a', shmSizeBytes: 9n, resources: { limits: { memoryBytes: limit } } },
      volumes: [
        {
          name: 'v',
          mountPath: '/v',
          source: { case: 'emptyDir', value: { medium: Medium.MEMORY, ...volume } },
        },
      ],
    });
    expect(toContainerRequest(aStartOrder({ spec }), container)).toMatchObject({
      shmSizeBytes: 9,
      volumes: [{ source: { kind: 'emptyDir', memory } }],
    });
  });

  it('uses the soft limit as the hard limit of a ulimit without a hard limit', () => {
    const ulimits = [
      { name: 'core' },
      { name: 'nofile', soft: 5n },
      { name: 'stack', soft: 5n, hard: -1n },
      { name: 'nproc', soft: -1n },
    ];
    const request = toContainerRequest(aStartOrder({ spec: { image: 'a', ulimits } }), container);
    expect(request.ulimits).toEqual([
      { name: 'core', soft: 0, hard: 0 },
      { name: 'nofile', soft: 5, hard: 5 },
      { name: 'stack', soft: 5, hard: -1 },
      { name: 'nproc', soft: -1, hard: -1 },
    ]);
  });

  it('fills in the default path and permissions of devices', () => {
    const devices = [
      { hostPath: '/dev/fuse' },
      { hostPath: '/dev/kvm', containerPath: '/dev/x', permissions: 'r' },
    ];
    expect(
      toContainerRequest(aStartOrder({ spec: { image: 'a', devices } }), container).devices,
    ).toEqual([
      { hostPath: '/dev/fuse', containerPath: '/dev/fuse', permissions: 'rwm' },
      { hostPath: '/dev/kvm', containerPath: '/dev/x', permissions: 'r' },
    ]);
  });

  it.each<{
    name: string;
    security: MessageInitShape<typeof SecurityContextSchema>;
    expected: object;
  }>([
    { name: 'an empty security context', security: {}, expected: {} },
    {
      name: 'ids, also those of root',
      security: { runAsUser: 0n, runAsGroup: 5n, runAsNonRoot: true },
      expected: { runAsUser: 0, runAsGroup: 5, runAsNonRoot: true },
    },
    {
      name: 'a user by name, and groups',
      security: { user: 'nginx', supplementalGroups: [5n, 6n], fsGroup: 0n },
      expected: { userName: 'nginx', supplementalGroups: [5, 6], fsGroup: 0 },
    },
    {
      name: 'capabilities by canonical name, each once',
      security: {
        capabilitiesAdd: ['CAP_NET_ADMIN', 'net_admin', 'BPF'],
        capabilitiesDrop: ['all'],
      },
      expected: { capabilitiesAdd: ['NET_ADMIN', 'BPF'], capabilitiesDrop: ['ALL'] },
    },
    {
      name: 'seccomp, AppArmor and SELinux profiles',
      security: {
        seccompProfile: 'localhost//etc/a.json',
        apparmorProfile: 'Unconfined',
        selinuxOptions: '::a_t:s0:c1',
      },
      expected: {
        seccomp: { kind: 'localhost', reference: '/etc/a.json' },
        apparmor: { kind: 'unconfined' },
        selinux: { user: '', role: '', type: 'a_t', level: 's0:c1' },
      },
    },
    {
      name: 'a read-only root, new privileges and a runtime class',
      security: {
        readOnlyRootFilesystem: true,
        noNewPrivileges: false,
        runtimeClass: 'runsc',
        seccompProfile: 'RuntimeDefault',
      },
      expected: {
        ...{ readOnlyRootFilesystem: true, noNewPrivileges: false, runtimeClass: 'runsc' },
        seccomp: { kind: 'runtimeDefault' },
      },
    },
    {
      name: 'a privileged container, which may gain new privileges',
      security: { privileged: true },
      expected: { privileged: true, noNewPrivileges: false },
    },
  ])('sets the security fields for $name', ({ security, expected }) => {
    expect(
      toContainerRequest(aStartOrder({ spec: { image: 'a', security } }), container).security,
    ).toEqual(expected);
  });

  it('sets no host port when the replica uses the host network', () => {
    const ports = [{ containerPort: 80, hostPort: 80 }];
    const requestOf = (hostNetwork: boolean): unknown =>
      toContainerRequest(
        aStartOrder({ spec: { image: 'a', ports, network: { hostNetwork } } }),
        container,
      );
    expect(requestOf(false)).toMatchObject({ ports: [{ port: 80, hostPort: 80 }], network: {} });
    expect(requestOf(true)).toMatchObject({
      ports: [{ name: 'port-80', port: 80, protocol: 'tcp' }],
      network: { hostNetwork: true },
    });
    expect(requestOf(true)).not.toHaveProperty('ports[0].hostPort');
  });

  it.each<{ name: string; spec: MessageInitShape<typeof WorkloadSpecSchema>; message: string }>([
    {
      name: 'capability',
      spec: { security: { capabilitiesAdd: ['FLY'] } },
      message: 'capability "FLY" is not supported by this agent version',
    },
    {
      name: 'seccomp profile',
      spec: { security: { seccompProfile: 'x' } },
      message: 'seccomp profile "x" is not supported by this agent version',
    },
    {
      name: 'SELinux option',
      spec: { security: { selinuxOptions: 'x' } },
      message: 'SELinux options "x" is not supported by this agent version',
    },
    {
      name: 'pull policy',
      spec: { imagePull: { policy: 7 as never } },
      message: 'pull policy "7" is not supported by this agent version',
    },
    {
      name: 'destination',
      spec: { network: { egress: { allowed: [{}] } } },
      message: 'network.egress.allowed[0] has no destination that this agent version supports',
    },
    {
      name: 'protocol of a destination',
      spec: {
        network: {
          egress: {
            allowed: [
              {
                destination: { case: 'cidr', value: '10.0.0.0/8' },
                ports: [{ protocol: 7 as never, port: 1 }],
              },
            ],
          },
        },
      },
      message: 'network.egress.allowed[0].ports has the protocol 7',
    },
    {
      name: 'volume source',
      spec: { volumes: [{ name: 'data' }] },
      message: 'volume "data" has no source that this agent version supports',
    },
  ])('rejects an unknown $name, which a newer coordinator may send', ({ spec, message }) => {
    expect(() =>
      toContainerRequest(aStartOrder({ spec: { image: 'a', ...spec } }), container),
    ).toThrow(
      expect.objectContaining({
        kind: 'invalid',
        message: expect.stringContaining(message) as unknown,
      }),
    );
  });

  it('rejects an order that is not a start order', () => {
    expect(() => toContainerRequest(aStopOrder(), container)).toThrow(
      'order 20 for web-1 is not a start order with a spec',
    );
  });
});

describe('fromContainerLabels', () => {
  it.each([
    { name: 'with failed starts', failedStarts: 2, label: '2', read: 2 },
    { name: 'without failed starts', failedStarts: 0, label: undefined, read: undefined },
  ])('reads the labels of a container $name', ({ failedStarts, label, read }) => {
    const { labels } = toContainerRequest(aStartOrder(), {
      ...container,
      restarts: 3,
      failedStarts,
    });
    expect(labels['cloudless.failed-starts']).toBe(label);
    const owner = fromContainerLabels(labels);
    expect([owner?.restarts, owner?.failedStarts]).toEqual([3, read]);
  });

  it.each([
    {},
    {
      'cloudless.cluster': 'c',
      'cloudless.node': 'n',
      'cloudless.replica': 'r',
      'cloudless.order-revision': 'x',
    },
  ])('returns undefined for the labels %j', (labels) => {
    expect(fromContainerLabels(labels)).toBeUndefined();
  });
});

/** Paths of the leaf fields that no request to a runtime contains, by the code that reads them. */
const READ_ELSEWHERE: Readonly<Record<string, RegExp>> = {
  'the scheduler':
    /^(runtime|priority|mode|placement\..*|resources\.requests\.(storage_bytes|bandwidth_bps|custom))$/,
  'the rollout': /^(replicas|restarted_at|rollout\..*)$/,
  'the service of the workload': /^expose\..*$/,
  toReplicaTarget:
    /^(restart\..*|termination_grace_period|pre_stop_delay|disconnect\..*|(liveness|readiness|startup)_probe\..*)$/,
  ReplicaFiles: /^((secrets|configs)\..*|image_pull\.secret)$/,
  'no reader: the API refuses these fields':
    /^(resources\.limits\.(storage_bytes|bandwidth_bps|custom)|resources\.(requests|limits)\.gpus|resources\.requests\.pids|volumes\.empty_dir\.size_limit_bytes)$/,
};

describe('toContainerRequest with one leaf field of the spec set', () => {
  type Init = MessageInitShape<typeof WorkloadSpecSchema>;
  const anImage = (init: Init = {}): WorkloadSpec =>
    create(WorkloadSpecSchema, { image: 'nginx', ...init });
  const requestText = (spec: WorkloadSpec): string =>
    JSON.stringify(
      toContainerRequest(aStartOrder({ spec }), {
        ...container,
        identity: { path: '/identity', inMemory: true },
        files: { directory: undefined, mounts: [], env: {}, secretEnv: {} },
        serviceAddresses: new Map([
          ['text', [{ address: '10.96.0.7', ports: [{ protocol: 'tcp', port: 80 }] }]],
        ]),
      }),
    );
  /** A destination with the ports. */
  const anEgress = (...ports: readonly { protocol?: Port_Protocol; endPort?: number }[]): Init => {
    const destination = { case: 'cidr' as const, value: '192.0.2.7' };
    return { network: { egress: { allowed: [{ destination, ports: [...ports] }] } } };
  };
  const withLeaf = (spec: WorkloadSpec): string =>
    requestText(updateSpec(anImage(), spec, undefined));
  /** Specs, by leaf path, for leaves that need other fields or a value that the sample lacks. */
  const specsWithLeaf: Readonly<Record<string, Init>> = {
    'volumes.name': { volumes: [{ name: 'text', source: { case: 'emptyDir', value: {} } }] },
    'volumes.mount_path': {
      volumes: [{ mountPath: 'text', source: { case: 'emptyDir', value: {} } }],
    },
    'volumes.read_only': { volumes: [{ readOnly: true, source: { case: 'emptyDir', value: {} } }] },
    'volumes.empty_dir.medium': {
      volumes: [{ source: { case: 'emptyDir', value: { medium: Medium.MEMORY } } }],
    },
    'network.egress.allowed.ports.protocol': anEgress({ protocol: Port_Protocol.UDP }),
    'network.egress.allowed.ports.port': anEgress({}),
    'network.egress.allowed.ports.end_port': anEgress({ endPort: 7 }),
    'security.capabilities_add': { security: { capabilitiesAdd: ['KILL'] } },
    'security.capabilities_drop': { security: { capabilitiesDrop: ['KILL'] } },
    'security.seccomp_profile': { security: { seccompProfile: 'Unconfined' } },
    'security.apparmor_profile': { security: { apparmorProfile: 'Unconfined' } },
    'security.selinux_options': { security: { selinuxOptions: ':::s0' } },
  };
  /** Specs to compare with, by leaf path, for leaves whose parent message must exist. */
  const specsWithoutLeaf: Readonly<Record<string, Init>> = Object.fromEntries([
    ...['name', 'mount_path', 'read_only'].map((name) => [
      `volumes.${name}`,
      { volumes: [{ source: { case: 'emptyDir' as const, value: {} } }] },
    ]),
    ...['name', 'container_port', 'protocol', 'host_port'].map((name) => [
      `ports.${name}`,
      { ports: [{}] },
    ]),
    ...['host_network', 'hostname', 'dns_servers'].map((name) => [
      `network.${name}`,
      { network: {} },
    ]),
    ...['cidr', 'service'].map((name) => [
      `network.egress.allowed.${name}`,
      { network: { egress: {} } },
    ]),
    ['network.egress.allowed.ports.port', anEgress()],
    ...['protocol', 'end_port'].map((name) => [
      `network.egress.allowed.ports.${name}`,
      anEgress({}),
    ]),
    ...['ip', 'hostnames'].map((name) => [
      `network.extra_hosts.${name}`,
      { network: { extraHosts: [{}] } },
    ]),
    [
      'volumes.empty_dir.medium',
      { volumes: [{ source: { case: 'emptyDir' as const, value: {} } }] },
    ],
    ...['host_path', 'container_path', 'permissions'].map((name) => [
      `devices.${name}`,
      { devices: [{}] },
    ]),
    ...['name', 'soft', 'hard'].map((name) => [`ulimits.${name}`, { ulimits: [{}] }]),
    ['volumes.named.name', { volumes: [{ source: { case: 'named' as const, value: {} } }] }],
    ['volumes.host_path.path', { volumes: [{ source: { case: 'hostPath' as const, value: {} } }] }],
  ]);
  const readers = (path: string): readonly string[] =>
    Object.entries(READ_ELSEWHERE).flatMap(([reader, paths]) => (paths.test(path) ? [reader] : []));

  it.each(listSpecLeaves().filter(({ path }) => readers(path).length === 0))(
    'passes $path to the runtime',
    ({ path, spec }) => {
      const init = specsWithLeaf[path];
      const request = init === undefined ? withLeaf(spec) : requestText(anImage(init));
      expect(request).not.toBe(requestText(anImage(specsWithoutLeaf[path])));
    },
  );

  it('ignores each leaf field that has another reader, and no field has two readers', () => {
    const others = listSpecLeaves().filter(({ path }) => readers(path).length > 0);
    expect(others.filter(({ path }) => readers(path).length > 1)).toEqual([]);
    // A volume needs a source; the sample of its size limit is an invalid spec.
    const alone = others.filter(({ path }) => !path.startsWith('volumes.'));
    expect(
      alone.filter(({ spec }) => withLeaf(spec) !== requestText(anImage())).map(({ path }) => path),
    ).toEqual([]);
  });
});
