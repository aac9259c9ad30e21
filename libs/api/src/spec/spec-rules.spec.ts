import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import fc from 'fast-check';
import {
  Disconnect_Mode as Mode,
  type DisconnectSchema,
  Port_Protocol,
  RestartPolicy_Policy as Restart,
  Taint_Effect,
  WorkloadSpecSchema,
  checkSpec,
  diffSpecs,
  checkSupported,
  updateSpec,
  type WorkloadSpec,
} from '../index.js';
import { arbitraryMessage } from '../testing/arbitrary-message.js';
import { aSpec, listSpecLeaves } from '../testing/index.js';

type Init = MessageInitShape<typeof WorkloadSpecSchema>;
const NUL = 'must not contain a NUL character';

describe('checkSpec', () => {
  it.each<{ name: string; spec: Init; field: string; message: string }>([
    {
      name: 'neither image nor command',
      spec: {},
      field: 'spec',
      message: 'image or command is required: an image runs in a container, a command as a process',
    },
    {
      name: 'arguments without image and command',
      spec: { args: ['a'] },
      field: 'spec',
      message: 'image or command is required: an image runs in a container, a command as a process',
    },
    {
      name: 'a command that begins with an empty word',
      spec: { command: ['', 'a'] },
      field: 'spec.command[0]',
      message: 'must name an executable',
    },
    {
      name: 'an image with the process runtime',
      spec: { image: 'a', runtime: 'process' },
      field: 'spec.runtime',
      message: 'the process runtime runs commands, not images; remove runtime or image',
    },
    {
      name: 'the cri runtime without an image',
      spec: { command: ['a'], runtime: 'cri' },
      field: 'spec.runtime',
      message: 'cri needs an image',
    },
    {
      name: 'an image with a space',
      spec: { image: 'nginx alpine' },
      field: 'spec.image',
      message:
        '"nginx alpine" is not an image reference; use one such as nginx:alpine or registry.example:5000/team/web:1.2',
    },
    {
      name: 'a NUL character in the command',
      spec: { command: ['a', 'b\0'] },
      field: 'spec.command[1]',
      message: NUL,
    },
    {
      name: 'a NUL character in an argument',
      spec: { command: ['a'], args: ['b', '\0'] },
      field: 'spec.args[1]',
      message: NUL,
    },
    {
      name: 'a NUL character in the value of an environment variable',
      spec: { command: ['a'], env: { A: 'x\0y' } },
      field: 'spec.env["A"]',
      message: NUL,
    },
    {
      name: 'a NUL character in the name of an environment variable',
      spec: { command: ['a'], env: { 'A\0': 'x' } },
      field: 'spec.env["A\\u0000"]',
      message: NUL,
    },
    {
      name: 'a NUL character in the working directory',
      spec: { command: ['a'], workingDir: '/a\0' },
      field: 'spec.working_dir',
      message: NUL,
    },
    {
      name: 'two ports with the same name',
      spec: {
        command: ['a'],
        ports: [
          { containerPort: 1, name: 'x' },
          { containerPort: 2, name: 'x' },
        ],
      },
      field: 'spec.ports[1].name',
      message: '"x" is used twice',
    },
    {
      name: 'a port name that equals the default name of another port',
      spec: {
        command: ['a'],
        ports: [{ containerPort: 80 }, { containerPort: 81, name: 'port-80' }],
      },
      field: 'spec.ports[1].name',
      message: '"port-80" is used twice',
    },
    {
      name: 'two ports with the same number and protocol',
      spec: {
        command: ['a'],
        ports: [
          { containerPort: 80, name: 'a' },
          { containerPort: 80, name: 'b' },
        ],
      },
      field: 'spec.ports[1].container_port',
      message: '80 is declared twice',
    },
    {
      name: 'a CPU limit below the request',
      spec: {
        command: ['a'],
        resources: { requests: { cpuMillis: 300 }, limits: { cpuMillis: 200 } },
      },
      field: 'spec.resources.limits.cpu_millis',
      message: '200 is below the request of 300',
    },
    {
      name: 'a memory limit below the request',
      spec: {
        command: ['a'],
        resources: { requests: { memoryBytes: 3n }, limits: { memoryBytes: 2n } },
      },
      field: 'spec.resources.limits.memory_bytes',
      message: '2 is below the request of 3',
    },
    {
      name: 'a toleration period for an effect other than NO_EXECUTE',
      spec: {
        command: ['a'],
        placement: {
          tolerations: [
            { key: 'a', tolerationPeriod: durationFromMs(1) },
            { key: 'a', effect: Taint_Effect.NO_EXECUTE, tolerationPeriod: durationFromMs(1) },
            { key: 'a', effect: Taint_Effect.NO_SCHEDULE, tolerationPeriod: durationFromMs(1) },
          ],
        },
      },
      field: 'spec.placement.tolerations[2].toleration_period',
      message:
        'only NO_EXECUTE removes running replicas; set effect to NO_EXECUTE, or remove the period',
    },
    {
      name: 'retries with policy NEVER',
      spec: { command: ['a'], restart: { policy: Restart.NEVER, maxRetries: 1 } },
      field: 'spec.restart.max_retries',
      message: 'a workload with policy NEVER has no retries; use ON_FAILURE',
    },
  ])('rejects $name', ({ spec, field, message }) => {
    expect(() => checkSpec(create(WorkloadSpecSchema, spec))).toThrow(
      expect.objectContaining({ kind: 'invalid', violations: [{ field, message }] }),
    );
  });

  it.each<{ name: string; spec: Init }>([
    { name: 'an image alone', spec: { image: 'nginx:alpine' } },
    {
      name: 'an image with a command',
      spec: {
        image: `registry.example:5000/a/b@sha256:${'0a'.repeat(32)}`,
        command: ['a'],
        runtime: 'cri',
      },
    },
    {
      name: 'a command with empty arguments',
      spec: { command: ['a', ''], args: [''], env: { A: '' } },
    },
    {
      name: 'one port number with two protocols',
      spec: {
        command: ['a'],
        ports: [
          { containerPort: 53, name: 'a' },
          { containerPort: 53, name: 'b', protocol: Port_Protocol.UDP },
        ],
      },
    },
    {
      name: 'limits equal to the requests',
      spec: {
        command: ['a'],
        resources: {
          requests: { cpuMillis: 5, memoryBytes: 5n },
          limits: { cpuMillis: 5, memoryBytes: 5n },
        },
      },
    },
    {
      name: 'limits below the default requests',
      spec: { command: ['a'], resources: { limits: { cpuMillis: 99, memoryBytes: 32n << 20n } } },
    },
    {
      name: 'limits of 0, which mean no limit',
      spec: { command: ['a'], resources: { limits: { cpuMillis: 0, memoryBytes: 0n } } },
    },
    {
      name: 'zero retries with policy NEVER',
      spec: { command: ['a'], restart: { policy: Restart.NEVER, maxRetries: 0 } },
    },
    {
      name: 'lost_after with AVAILABLE',
      spec: { command: ['a'], disconnect: { lostAfter: durationFromMs(1) } },
    },
    {
      name: 'a process with EXCLUSIVE',
      spec: { command: ['a'], disconnect: { mode: Mode.EXCLUSIVE } },
    },
    {
      name: 'EXCLUSIVE with the shortest allowed times',
      spec: {
        command: ['a'],
        disconnect: {
          mode: Mode.EXCLUSIVE,
          stopAfter: durationFromMs(3_000),
          lostAfter: durationFromMs(6_000),
        },
      },
    },
  ])('accepts $name', ({ spec }) => {
    expect(() => checkSpec(create(WorkloadSpecSchema, spec))).not.toThrow();
  });

  it.each<{ name: string; disconnect: MessageInitShape<typeof DisconnectSchema>; message: string }>(
    [
      {
        name: 'stop_after with AVAILABLE',
        disconnect: { stopAfter: durationFromMs(5_000) },
        message:
          'spec.disconnect.stop_after: only EXCLUSIVE replicas stop themselves; set spec.disconnect.mode',
      },
      {
        name: 'stop_after below the lease',
        disconnect: { mode: Mode.EXCLUSIVE, stopAfter: durationFromMs(2_999) },
        message: 'spec.disconnect.stop_after: 2999 ms is below 3000 ms, the lease of a node',
      },
      {
        name: 'lost_after below twice stop_after',
        disconnect: { mode: Mode.EXCLUSIVE, lostAfter: durationFromMs(19_999) },
        message:
          'spec.disconnect.lost_after: 19999 ms is below twice stop_after (20000 ms): the old replica could still run when its replacement starts',
      },
    ],
  )('rejects $name', ({ disconnect, message }) => {
    expect(() => checkSpec(aSpec({ command: ['a'], disconnect }))).toThrow(message);
  });

  it('throws one error with every violation', () => {
    const spec = aSpec({
      command: [''],
      workingDir: '\0',
      ports: [{ containerPort: 1 }, { containerPort: 1 }],
      restart: { policy: Restart.NEVER, maxRetries: 2 },
    });
    expect(() => checkSpec(spec)).toThrow(
      expect.objectContaining({ violations: Array.from({ length: 5 }, () => expect.anything()) }),
    );
  });
});

/**
 * Paths of all leaves of a spec that `checkSupported` must accept. It must reject every other leaf,
 * so a new field fails the spec below until it is listed here or rejected.
 */
const SUPPORTED = [
  ...['secrets', 'configs'].flatMap((list) =>
    [
      ...['name', 'env', 'mount_path', 'keys.key', 'keys.env', 'keys.file', 'mode', 'version'],
      ...['reload.mode', 'reload.signal'],
    ].map((name) => `${list}.${name}`),
  ),
  'secrets.audience',
  'image_pull.secret',
  'init',
  'identity',
  ...['name', 'soft', 'hard'].map((name) => `ulimits.${name}`),
  'expose.name',
  'expose.port',
  'image_pull.platform',
  ...['host_path', 'container_path', 'permissions'].map((name) => `devices.${name}`),
  'sysctls',
  ...['user', 'supplemental_groups', 'fs_group'].map((name) => `security.${name}`),
  'shm_size_bytes',
  'volumes.empty_dir.medium',
  'image',
  'command',
  'args',
  'env',
  'working_dir',
  'labels',
  'annotations',
  'runtime',
  'restarted_at',
  'replicas',
  'mode',
  'priority',
  'termination_grace_period',
  'pre_stop_delay',
  'ports.name',
  'ports.container_port',
  'ports.protocol',
  'ports.host_port',
  'resources.requests.cpu_millis',
  'resources.requests.memory_bytes',
  'resources.requests.storage_bytes',
  'resources.requests.bandwidth_bps',
  'resources.requests.custom',
  'resources.limits.cpu_millis',
  'resources.limits.memory_bytes',
  'resources.limits.pids',
  // `checkSupported` accepts the field, and `checkSpec` rejects it as invalid.
  'resources.requests.pids',
  'resources.limits.custom',
  'placement.regions',
  'placement.zones',
  'placement.locality',
  'placement.node_selector',
  ...['affinity', 'anti_affinity'].flatMap((side) => [
    ...['key', 'operator', 'values'].map((name) => `placement.${side}.nodes.match.${name}`),
    `placement.${side}.nodes.weight`,
    ...['key', 'operator', 'values'].map((name) => `placement.${side}.workloads.match.${name}`),
    ...['topology', 'namespaces', 'weight'].map((name) => `placement.${side}.workloads.${name}`),
  ]),
  ...['key', 'operator', 'value', 'effect', 'toleration_period'].map(
    (name) => `placement.tolerations.${name}`,
  ),
  ...['topology', 'mode', 'max_skew'].map((name) => `placement.spread.${name}`),
  'restart.policy',
  'restart.max_retries',
  ...['liveness_probe', 'readiness_probe', 'startup_probe'].flatMap((probe) =>
    [
      ...[
        'exec.command',
        'http.path',
        'http.port',
        'http.headers',
        'tcp.port',
        'grpc.port',
        'grpc.service',
      ],
      ...['initial_delay', 'period', 'timeout', 'success_threshold', 'failure_threshold'],
    ].map((leaf) => `${probe}.${leaf}`),
  ),
  'rollout.max_surge',
  'rollout.max_unavailable',
  'rollout.min_available',
  'rollout.min_ready_duration',
  'rollout.strategy',
  'rollout.progress_deadline',
  'rollout.max_failed_new',
  'rollout.max_failed_new_percent',
  'rollout.on_failure',
  'rollout.pause_duration',
  'rollout.promotion',
  'rollout.steps.replicas',
  'rollout.steps.percent',
  'rollout.steps.wait',
  'rollout.steps.promotion',
  'rollout.steps.weight_percent',
  'rollout.steps.gate',
  'disconnect.mode',
  'disconnect.lost_after',
  'disconnect.stop_after',
  ...[
    'run_as_non_root',
    'run_as_user',
    'run_as_group',
    'read_only_root_filesystem',
    'privileged',
    'no_new_privileges',
  ].map((name) => `security.${name}`),
  ...[
    'capabilities_add',
    'capabilities_drop',
    'seccomp_profile',
    'apparmor_profile',
    'selinux_options',
    'runtime_class',
  ].map((name) => `security.${name}`),
  ...['name', 'mount_path', 'read_only', 'host_path.path', 'named.name'].map(
    (name) => `volumes.${name}`,
  ),
  ...['host_network', 'hostname', 'dns_servers', 'extra_hosts.ip', 'extra_hosts.hostnames'].map(
    (name) => `network.${name}`,
  ),
  ...['cidr', 'service', 'ports.protocol', 'ports.port', 'ports.end_port'].map(
    (name) => `network.egress.allowed.${name}`,
  ),
  'image_pull.policy',
];

const leaves = listSpecLeaves();

/**
 * Returns the message with which `checkSupported` rejects a spec; undefined when it accepts the
 * spec.
 */
function getRejection(spec: WorkloadSpec): string | undefined {
  try {
    checkSupported(spec);
    return undefined;
  } catch (reason) {
    expect(reason).toMatchObject({ kind: 'unimplemented' });
    return (reason as Error).message;
  }
}

describe('checkSupported', () => {
  it.each(leaves)(
    'accepts $path if it is built, and otherwise rejects it by its path or the path of its parent',
    ({ path, spec }) => {
      const rejection = getRejection(spec);
      const rejectedPath = rejection?.replace(/\[0\]/g, '').replace(/^spec\.|[ (:,].*$/g, '');
      if (SUPPORTED.includes(path)) expect(rejection).toBeUndefined();
      else
        expect([
          rejectedPath,
          path.startsWith(`${rejectedPath ?? '?'}.`) || path === rejectedPath,
        ]).toEqual([rejectedPath, true]);
    },
  );

  it('is tested with a list of supported fields that all exist', () => {
    const paths = leaves.map(({ path }) => path);
    expect(SUPPORTED.filter((path) => !paths.includes(path))).toEqual([]);
  });

  it.each<{ name: string; spec: Init }>([
    {
      name: 'empty messages',
      spec: {
        security: {},
        network: {},
        imagePull: {},
        rollout: {},
        disconnect: {},
        placement: {},
        restart: {},
        resources: { requests: {}, limits: {} },
      },
    },
    {
      name: 'empty lists',
      spec: { volumes: [], secrets: [], ports: [], rollout: { steps: [] } },
    },
    {
      name: 'amounts of 0 for fields that are not built',
      spec: {
        resources: {
          requests: { storageBytes: 0n, bandwidthBps: 0n, gpus: 0 },
          limits: { storageBytes: 0n, bandwidthBps: 0n, gpus: 0 },
        },
        ports: [{ containerPort: 80, hostPort: 0 }],
      },
    },
    {
      name: 'the defaults of a rollout',
      spec: {
        rollout: {
          strategy: 0,
          progressDeadline: durationFromMs(600_000),
          maxFailedNew: 3,
          onFailure: 0,
          pauseDuration: durationFromMs(0),
          promotion: 0,
        },
      },
    },
    {
      name: 'the defaults of disconnect',
      spec: {
        disconnect: { mode: 0, lostAfter: durationFromMs(0), stopAfter: durationFromMs(10_000) },
      },
    },
    {
      name: 'the defaults of other fields',
      spec: {
        mode: 0,
        priority: 50,
        imagePull: { policy: 0, secret: '' },
        network: { hostNetwork: false },
        placement: {
          tolerations: [{ key: 'a' }, { key: 'b', tolerationPeriod: durationFromMs(1) }],
        },
      },
    },
    { name: 'the highest priority', spec: { priority: 1000 } },
  ])('accepts $name', ({ spec }) => {
    expect(getRejection(aSpec(spec))).toBeUndefined();
  });

  it('rejects EXCLUSIVE for a container and accepts it for a process', () => {
    const disconnect = { mode: Mode.EXCLUSIVE };
    expect(getRejection(aSpec({ image: 'nginx:alpine', disconnect }))).toBe(
      'spec.disconnect.mode (EXCLUSIVE with an image): not supported in this version; leave it out',
    );
    expect(getRejection(aSpec({ disconnect }))).toBeUndefined();
  });

  it.each(['cpu', 'fsize', 'as'])(
    'rejects the ulimit %s, which would also limit the process that starts the container',
    (name) => {
      const spec = aSpec({
        image: 'nginx:alpine',
        ulimits: [{ name: 'core' }, { name, soft: 5n }],
      });
      expect(getRejection(spec)).toBe(
        `spec.ulimits[1].name (${name}): not supported in this version; leave it out`,
      );
    },
  );

  it('throws one error with every field that is not built, with list indexes', () => {
    const spec = aSpec({
      volumes: [{}, { source: { case: 'emptyDir', value: { sizeLimitBytes: 1n } } }],
      resources: { requests: { gpus: 1 } },
    });
    expect(getRejection(spec)).toBe(
      'spec.volumes[1].empty_dir.size_limit_bytes (only with medium MEMORY), spec.resources.requests.gpus: not supported in this version; leave them out',
    );
  });

  it('accepts any spec after all fields that are not built, and EXCLUSIVE, were cleared', () => {
    const unsupported = leaves
      .filter(({ path }) => !SUPPORTED.includes(path))
      .map(({ path }) => path);
    const inLists =
      /^(ports|placement\.tolerations|volumes|secrets|rollout\.steps|ulimits|devices|expose)\./;
    const lists = [
      'volumes',
      'secrets',
      'rollout.steps',
      'ports',
      'placement.tolerations',
      'ulimits',
      'devices',
      'expose',
    ];
    const clearedAsWhole = [...lists, 'priority', 'disconnect'];
    const clearable = [...unsupported.filter((path) => !inLists.test(path)), ...clearedAsWhole];
    fc.assert(
      fc.property(arbitraryMessage(WorkloadSpecSchema), (spec) => {
        const cleared = updateSpec(spec, create(WorkloadSpecSchema), clearable);
        expect(getRejection(cleared)).toBeUndefined();
        expect(diffSpecs(spec, cleared).every(({ after }) => after === undefined)).toBe(true);
      }),
      { numRuns: 50 },
    );
  });
});
