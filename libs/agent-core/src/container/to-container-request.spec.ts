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

const place = {
  clusterId: 'cluster-1',
  nodeId: 'node-1',
  containerId: toContainerId('a'.repeat(64)),
};

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
    const request = toContainerRequest(aStartOrder({ spec }), place);
    expect(request).toMatchObject({
      containerId: place.containerId,
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
    'sets no limit when it is $name, and no image and working directory when the spec has none',
    ({ spec }) => {
      const request = toContainerRequest(aStartOrder({ spec }), place);
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

  it('uses the default CPU request when the spec has none', () => {
    const requests = { cpuMillis: 100, memoryBytes: 64 * 1024 * 1024 };
    expect(toContainerRequest(aStartOrder({ spec: { command: ['a'] } }), place).requests).toEqual(
      requests,
    );
    const limited = { command: ['a'], resources: { limits: { cpuMillis: 50 } } };
    expect(toContainerRequest(aStartOrder({ spec: limited }), place).requests).toEqual({
      ...requests,
      cpuMillis: 50,
    });
  });

  it('sets no container-only field without an image', () => {
    const request = toContainerRequest(aStartOrder({ spec: { command: ['serve'] } }), place);
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
      toContainerRequest(aStartOrder({ spec: { image: 'a', imagePull: { policy } } }), place),
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
    expect(toContainerRequest(aStartOrder({ spec }), place).volumes).toEqual([
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
    { given: { sizeLimitBytes: 5n }, limit: 7n, memory: { sizeBytes: 5 } },
    { given: {}, limit: 7n, memory: { sizeBytes: 7 } },
    { given: {}, limit: 0n, memory: {} },
  ])(
    'limits an in-memory directory of size $given with a memory limit of $limit',
    ({ given, limit, memory }) => {
      const spec = create(WorkloadSpecSchema, {
        ...{ image: 'a', shmSizeBytes: 9n, resources: { limits: { memoryBytes: limit } } },
        volumes: [
          {
            name: 'v',
            mountPath: '/v',
            source: { case: 'emptyDir', value: { medium: Medium.MEMORY, ...given } },
          },
        ],
      });
      expect(toContainerRequest(aStartOrder({ spec }), place)).toMatchObject({
        shmSizeBytes: 9,
        volumes: [{ source: { kind: 'emptyDir', memory } }],
      });
    },
  );

  it('sets the hard limit of each ulimit', () => {
    const ulimits = [
      { name: 'core' },
      { name: 'nofile', soft: 5n },
      { name: 'stack', soft: 5n, hard: -1n },
      { name: 'nproc', soft: -1n },
    ];
    const request = toContainerRequest(aStartOrder({ spec: { image: 'a', ulimits } }), place);
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
      toContainerRequest(aStartOrder({ spec: { image: 'a', devices } }), place).devices,
    ).toEqual([
      { hostPath: '/dev/fuse', containerPath: '/dev/fuse', permissions: 'rwm' },
      { hostPath: '/dev/kvm', containerPath: '/dev/x', permissions: 'r' },
    ]);
  });

  it.each<{ name: string; security: MessageInitShape<typeof SecurityContextSchema>; asks: object }>(
    [
      { name: 'nothing', security: {}, asks: {} },
      {
        name: 'ids, also those of root',
        security: { runAsUser: 0n, runAsGroup: 5n, runAsNonRoot: true },
        asks: { runAsUser: 0, runAsGroup: 5, runAsNonRoot: true },
      },
      {
        name: 'a user by name, and groups',
        security: { user: 'nginx', supplementalGroups: [5n, 6n], fsGroup: 0n },
        asks: { userName: 'nginx', supplementalGroups: [5, 6], fsGroup: 0 },
      },
      {
        name: 'capabilities by canonical name, each once',
        security: {
          capabilitiesAdd: ['CAP_NET_ADMIN', 'net_admin', 'BPF'],
          capabilitiesDrop: ['all'],
        },
        asks: { capabilitiesAdd: ['NET_ADMIN', 'BPF'], capabilitiesDrop: ['ALL'] },
      },
      {
        name: 'profiles',
        security: {
          seccompProfile: 'localhost//etc/a.json',
          apparmorProfile: 'Unconfined',
          selinuxOptions: '::a_t:s0:c1',
        },
        asks: {
          seccomp: { kind: 'localhost', reference: '/etc/a.json' },
          apparmor: { kind: 'unconfined' },
          selinux: { user: '', role: '', type: 'a_t', level: 's0:c1' },
        },
      },
      {
        name: 'the other fields',
        security: {
          readOnlyRootFilesystem: true,
          noNewPrivileges: false,
          runtimeClass: 'runsc',
          seccompProfile: 'RuntimeDefault',
        },
        asks: {
          ...{ readOnlyRootFilesystem: true, noNewPrivileges: false, runtimeClass: 'runsc' },
          seccomp: { kind: 'runtimeDefault' },
        },
      },
      {
        name: 'privileged containers, which may gain new privileges',
        security: { privileged: true },
        asks: { privileged: true, noNewPrivileges: false },
      },
    ],
  )('sets the security fields for $name', ({ security, asks }) => {
    expect(
      toContainerRequest(aStartOrder({ spec: { image: 'a', security } }), place).security,
    ).toEqual(asks);
  });

  it('sets no host port with the host network', () => {
    const ports = [{ containerPort: 80, hostPort: 80 }];
    const requestOf = (hostNetwork: boolean): unknown =>
      toContainerRequest(
        aStartOrder({ spec: { image: 'a', ports, network: { hostNetwork } } }),
        place,
      );
    expect(requestOf(false)).toMatchObject({ ports: [{ port: 80, hostPort: 80 }], network: {} });
    expect(requestOf(true)).toMatchObject({
      ports: [{ name: 'port-80', port: 80, protocol: 'tcp' }],
      network: { hostNetwork: true },
    });
    expect(requestOf(true)).not.toHaveProperty('ports[0].hostPort');
  });

  it.each<{ name: string; spec: MessageInitShape<typeof WorkloadSpecSchema>; says: string }>([
    {
      name: 'a capability',
      spec: { security: { capabilitiesAdd: ['FLY'] } },
      says: 'capability "FLY" is not supported by this agent version',
    },
    {
      name: 'a profile',
      spec: { security: { seccompProfile: 'x' } },
      says: 'seccomp profile "x" is not supported by this agent version',
    },
    {
      name: 'SELinux options',
      spec: { security: { selinuxOptions: 'x' } },
      says: 'SELinux options "x" is not supported by this agent version',
    },
    {
      name: 'a pull policy',
      spec: { imagePull: { policy: 7 as never } },
      says: 'pull policy "7" is not supported by this agent version',
    },
    {
      name: 'a source',
      spec: { volumes: [{ name: 'data' }] },
      says: 'volume "data" has no source that this agent version supports',
    },
  ])('rejects a value of a newer coordinator: $name', ({ spec, says }) => {
    expect(() => toContainerRequest(aStartOrder({ spec: { image: 'a', ...spec } }), place)).toThrow(
      expect.objectContaining({
        kind: 'invalid',
        message: expect.stringContaining(says) as unknown,
      }),
    );
  });

  it('rejects an order that is not a start order', () => {
    expect(() => toContainerRequest(aStopOrder(), place)).toThrow(
      'order 20 for web-1 is not a start order with a spec',
    );
  });

  it.each([
    {},
    {
      'cloudless.cluster': 'c',
      'cloudless.node': 'n',
      'cloudless.replica': 'r',
      'cloudless.order-revision': 'x',
    },
  ])('reads no owner from the labels %j', (labels) => {
    expect(fromContainerLabels(labels)).toBeUndefined();
  });
});

/** Readers of the leaf fields of a spec that no request to a runtime contains. */
const READ_ELSEWHERE: Readonly<Record<string, RegExp>> = {
  'the scheduler': /^(runtime|priority|mode|placement\..*)$/,
  'the rollout': /^(replicas|restarted_at|rollout\..*)$/,
  toReplicaPlan:
    /^(restart\..*|termination_grace_period|pre_stop_delay|disconnect\..*|(liveness|readiness|startup)_probe\..*)$/,
  'nobody, for the API refuses them':
    /^(resources\.(requests|limits)\.(storage_bytes|bandwidth_bps|gpus)|resources\.requests\.pids|volumes\.empty_dir\.size_limit_bytes|secrets\..*|image_pull\.secret)$/,
};

describe('toContainerRequest for every leaf field of a spec', () => {
  type Init = MessageInitShape<typeof WorkloadSpecSchema>;
  const anImage = (init: Init = {}): WorkloadSpec =>
    create(WorkloadSpecSchema, { image: 'nginx', ...init });
  const requestText = (spec: WorkloadSpec): string =>
    JSON.stringify(toContainerRequest(aStartOrder({ spec }), place));
  const withLeaf = (spec: WorkloadSpec): string =>
    requestText(updateSpec(anImage(), spec, undefined));
  /** Fields that a leaf needs, and a value where the sample has none. */
  const beside: Readonly<Record<string, Init>> = {
    'volumes.name': { volumes: [{ name: 'text', source: { case: 'emptyDir', value: {} } }] },
    'volumes.mount_path': {
      volumes: [{ mountPath: 'text', source: { case: 'emptyDir', value: {} } }],
    },
    'volumes.read_only': { volumes: [{ readOnly: true, source: { case: 'emptyDir', value: {} } }] },
    'volumes.empty_dir.medium': {
      volumes: [{ source: { case: 'emptyDir', value: { medium: Medium.MEMORY } } }],
    },
    'security.capabilities_add': { security: { capabilitiesAdd: ['KILL'] } },
    'security.capabilities_drop': { security: { capabilitiesDrop: ['KILL'] } },
    'security.seccomp_profile': { security: { seccompProfile: 'Unconfined' } },
    'security.apparmor_profile': { security: { apparmorProfile: 'Unconfined' } },
    'security.selinux_options': { security: { selinuxOptions: ':::s0' } },
  };
  /** The spec without the leaf. */
  const without: Readonly<Record<string, Init>> = Object.fromEntries([
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
      const init = beside[path];
      const given = init === undefined ? withLeaf(spec) : requestText(anImage(init));
      expect(given).not.toBe(requestText(anImage(without[path])));
    },
  );

  it('has one reader for every other leaf', () => {
    const others = listSpecLeaves().filter(({ path }) => readers(path).length > 0);
    expect(others.filter(({ path }) => readers(path).length > 1)).toEqual([]);
    // A volume must have a source; this one has an invalid size.
    const alone = others.filter(({ path }) => !path.startsWith('volumes.'));
    expect(
      alone.filter(({ spec }) => withLeaf(spec) !== requestText(anImage())).map(({ path }) => path),
    ).toEqual([]);
  });
});
