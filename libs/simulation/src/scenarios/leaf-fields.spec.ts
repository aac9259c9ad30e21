import { create, fromJson, type DescMessage, type JsonObject } from '@bufbuild/protobuf';
import { toContainerRequest, toReplicaTarget } from '@cloudless/agent-core';
import {
  ReplicaStatus_Phase as Phase,
  Taint_Effect,
  WorkloadSpecSchema,
  listRequiredCapabilities,
  type Order,
} from '@cloudless/api';
import { ConfigRecordSchema, SecretRecordSchema } from '@cloudless/api/store';
import { toContainerId } from '@cloudless/base';
import { TestCluster } from '../index.js';
import { SimulatedProxy } from '../test-cluster/simulated-proxy.js';

/**
 * Returns the path of every field of a spec that holds a value. Lists and maps of messages count as
 * one step.
 */
function leavesOf(message: DescMessage, prefix = ''): string[] {
  return message.fields.flatMap((field) => {
    const path = `${prefix}${field.name}`;
    const inner =
      field.fieldKind === 'message' || (field.fieldKind === 'list' && field.listKind === 'message')
        ? field.message
        : undefined;
    const isOwn = inner?.typeName.startsWith('cloudless.') === true;
    // The presence of a message without fields is a value.
    return isOwn && inner.fields.length > 0 ? leavesOf(inner, `${path}.`) : [path];
  });
}

/**
 * Two specs that differ in one leaf field, and the world in which the difference must be
 * observable.
 */
interface Row {
  readonly base?: JsonObject;
  readonly variant: JsonObject;
  /**
   * `contended`: capacity for one of two workloads; `cutOff`: two nodes, one of which falls silent
   * at the end; `evicting`: two nodes, one of which gets a NO_EXECUTE taint; `failing`: the updated
   * program ends with an error at once; `containers`: one node with every container capability.
   * Default: four different nodes with free capacity.
   */
  readonly world?: 'contended' | 'cutOff' | 'evicting' | 'failing' | 'containers';
  /** Text that names the field in the rejection of the variant. */
  readonly rejectionText?: string;
  /** Code of the rejection. Default: 12, UNIMPLEMENTED. */
  readonly code?: number;
}

const affinityTo = (kind: 'nodes' | 'workloads', term: JsonObject): JsonObject => ({
  [kind]: [term],
});
const ofNodes = (
  path: 'affinity' | 'antiAffinity',
  before: JsonObject,
  after: JsonObject,
): Row => ({
  base: { replicas: 1, placement: { [path]: affinityTo('nodes', before) } },
  variant: { replicas: 1, placement: { [path]: affinityTo('nodes', after) } },
});
const ofWorkloads = (
  path: 'affinity' | 'antiAffinity',
  before: JsonObject,
  after: JsonObject,
): Row => ({
  base: { replicas: 1, placement: { [path]: affinityTo('workloads', before) } },
  variant: { replicas: 1, placement: { [path]: affinityTo('workloads', after) } },
});
const isDisk = (value: string): JsonObject => ({ key: 'disk', values: [value] });
const isDb = (value: string): JsonObject => ({ key: 'app', values: [value] });
const withToleration = (toleration: JsonObject): JsonObject => ({
  nodeSelector: { tainted: 'yes' },
  tolerations: [toleration],
});

/** Six replicas, of which the one node in zone west has capacity for only two. */
const withFullWestNode = (spread: JsonObject): JsonObject => ({
  replicas: 6,
  resources: { requests: { cpuMillis: 1_500 } },
  placement: { spread },
});

const affinityRows = (path: 'affinity' | 'anti_affinity'): Record<string, Row> => {
  const key = path === 'affinity' ? 'affinity' : 'antiAffinity';
  return {
    [`placement.${path}.nodes.match.key`]: ofNodes(
      key,
      { match: [isDisk('ssd')] },
      { match: [{ key: 'tier', values: ['ssd'] }] },
    ),
    [`placement.${path}.nodes.match.operator`]: ofNodes(
      key,
      { match: [isDisk('ssd')] },
      { match: [{ ...isDisk('ssd'), operator: 'NOT_IN' }] },
    ),
    [`placement.${path}.nodes.match.values`]: ofNodes(
      key,
      { match: [isDisk('ssd')] },
      { match: [isDisk('hdd')] },
    ),
    [`placement.${path}.nodes.weight`]: ofNodes(
      key,
      { match: [isDisk('ssd')] },
      { match: [isDisk('ssd')], weight: 50 },
    ),
    [`placement.${path}.workloads.match.key`]: ofWorkloads(
      key,
      { match: [isDb('db')] },
      { match: [{ key: 'kind', values: ['db'] }] },
    ),
    [`placement.${path}.workloads.match.operator`]: ofWorkloads(
      key,
      { match: [isDb('db')] },
      { match: [{ ...isDb('db'), operator: 'NOT_IN' }] },
    ),
    [`placement.${path}.workloads.match.values`]: ofWorkloads(
      key,
      { match: [isDb('db')] },
      { match: [isDb('cache')] },
    ),
    [`placement.${path}.workloads.topology`]: ofWorkloads(
      key,
      { match: [isDb('db')] },
      { match: [isDb('db')], topology: 'region' },
    ),
    [`placement.${path}.workloads.namespaces`]: ofWorkloads(
      key,
      { match: [isDb('db')] },
      { match: [isDb('db')], namespaces: ['elsewhere'] },
    ),
    [`placement.${path}.workloads.weight`]: ofWorkloads(
      key,
      { match: [isDb('other')] },
      { match: [isDb('other')], weight: 50 },
    ),
    ...(path === 'affinity'
      ? {}
      : {
          [`placement.${path}.workloads.weight`]: ofWorkloads(
            key,
            { match: [isDb('db')], topology: 'region' },
            { match: [isDb('db')], topology: 'region', weight: 50 },
          ),
        }),
  };
};

/**
 * The specs of agent-core (`probes/probe-fields.spec.ts`) test the effect of each probe field in
 * the agent.
 */
const probeRows = (name: string, jsonName: string): Record<string, Row> => {
  const ports = [
    { name: 'http', containerPort: 80 },
    { name: 'admin', containerPort: 81 },
  ];
  const row = (before: JsonObject, after: JsonObject): Row => ({
    base: { ports, [jsonName]: before },
    variant: { ports, [jsonName]: after },
  });
  const exec = { exec: { command: ['true'] } };
  const http = (fields: JsonObject): JsonObject => ({ http: { port: 'http', ...fields } });
  // TCP and gRPC probes accept only a success threshold of 1.
  const successes =
    name === 'readiness_probe' ? row(exec, { ...exec, successThreshold: 2 }) : undefined;
  const rows: Record<string, Row> = {
    'exec.command': row(exec, { exec: { command: ['false'] } }),
    'http.path': row(http({}), http({ path: '/healthz' })),
    'http.port': row(http({}), { http: { port: 'admin' } }),
    'http.headers': row(http({}), http({ headers: { a: 'b' } })),
    'tcp.port': row({ tcp: { port: 'http' } }, { tcp: { port: '81' } }),
    'grpc.port': row({ grpc: { port: 'http' } }, { grpc: { port: 'admin' } }),
    'grpc.service': row(
      { grpc: { port: 'http' } },
      { grpc: { port: 'http', service: 'shop.Cart' } },
    ),
    initial_delay: row(exec, { ...exec, initialDelay: '1s' }),
    period: row(exec, { ...exec, period: '1s' }),
    timeout: row(exec, { ...exec, timeout: '2s' }),
    failure_threshold: row(exec, { ...exec, failureThreshold: 2 }),
    success_threshold: successes ?? {
      variant: { [jsonName]: { ...exec, successThreshold: 2 } },
      ...{ rejectionText: `spec.${name}.success_threshold`, code: 3 },
    },
  };
  return Object.fromEntries(Object.entries(rows).map(([leaf, row]) => [`${name}.${leaf}`, row]));
};

const withSteps = (before: JsonObject, after: JsonObject): Row => ({
  base: { rollout: { steps: [before] } },
  variant: { rollout: { steps: [after] } },
});

/** Uses nodes with every needed capability, so that the runtime request shows the difference. */
const ofImage = (before: JsonObject, after: JsonObject): Row => ({
  base: { image: 'nginx', ...before },
  variant: { image: 'nginx', ...after },
  world: 'containers',
});
/** Two workloads with an image that differ in their one destination. */
const ofEgress = (before: JsonObject, after: JsonObject): Row =>
  ofImage(
    { network: { egress: { allowed: [before] } } },
    { network: { egress: { allowed: [after] } } },
  );
/** Secrets and configs of the world `containers`, by name: the keys of each version. */
const FILES: Readonly<Record<string, readonly (readonly string[])[]>> = {
  x: [['k'], ['k']],
  y: [['k']],
  two: [['k', 'l']],
  registry: [['username', 'password']],
};

/** The rows of references to secrets or configs. */
const filesRows = (kind: 'secrets' | 'configs'): Record<string, Row> => {
  const of = (before: JsonObject, after: JsonObject): Row =>
    ofImage({ [kind]: [{ name: 'x', ...before }] }, { [kind]: [{ name: 'x', ...after }] });
  const ofKeys = (before: JsonObject, after: JsonObject): Row =>
    of({ name: 'two', keys: [before] }, { name: 'two', keys: [after] });
  return {
    [`${kind}.name`]: of({}, { name: 'y' }),
    [`${kind}.env`]: of({}, { env: 'X' }),
    [`${kind}.mount_path`]: of({}, { mountPath: '/x' }),
    [`${kind}.keys.key`]: ofKeys({ key: 'k', file: 'f' }, { key: 'l', file: 'f' }),
    [`${kind}.keys.env`]: ofKeys({ key: 'k' }, { key: 'k', env: 'X' }),
    [`${kind}.keys.file`]: ofKeys({ key: 'k' }, { key: 'k', file: 'f' }),
    [`${kind}.mode`]: of({}, { mode: 288 }),
    [`${kind}.version`]: of({}, { version: 1 }),
    [`${kind}.reload.mode`]: of({}, { reload: { mode: 'NONE' } }),
    [`${kind}.reload.signal`]: of(
      { reload: { mode: 'SIGNAL' } },
      { reload: { mode: 'SIGNAL', signal: 'SIGUSR1' } },
    ),
  };
};

/** Stores {@link FILES} as secrets and as configs, without values. */
async function putFiles({ state }: TestCluster): Promise<void> {
  const transaction = state.transaction();
  for (const [name, versions] of Object.entries(FILES)) {
    const fields = {
      ...{ namespace: 'default', name, uid: name, version: versions.length },
      versions: versions.map((keys, index) => ({
        version: index + 1,
        sizes: Object.fromEntries(keys.map((key) => [key, 1])),
      })),
    };
    const secret = create(SecretRecordSchema, { ...fields, audiences: ['*'] });
    transaction.put('secret', `default/${name}`, secret);
    transaction.put('config', `default/${name}`, create(ConfigRecordSchema, fields));
  }
  await state.commit(transaction);
}

const ofVolume = (before: JsonObject, after: JsonObject): Row => {
  const volume = {
    name: 'data',
    mountPath: '/data',
    ...('hostPath' in before || 'named' in before || 'emptyDir' in before ? {} : { emptyDir: {} }),
    ...before,
  };
  return ofImage({ volumes: [volume] }, { volumes: [{ ...volume, ...after }] });
};

const ofUlimit = (other: JsonObject): Row =>
  ofImage(
    { ulimits: [{ name: 'nofile', soft: '1000' }] },
    { ulimits: [{ name: 'nofile', soft: '1000', ...other }] },
  );
const ofDevice = (other: JsonObject): Row =>
  ofImage(
    { devices: [{ hostPath: '/dev/fuse' }] },
    { devices: [{ hostPath: '/dev/fuse', ...other }] },
  );

const exposing = (exposed: JsonObject): JsonObject => ({
  ports: [
    { name: 'http', containerPort: 8080 },
    { name: 'admin', containerPort: 9090 },
  ],
  expose: [exposed],
});
const rows: Readonly<Record<string, Row>> = {
  'expose.name': {
    base: exposing({ name: 'http', port: 80 }),
    variant: exposing({ name: 'admin', port: 80 }),
  },
  'expose.port': {
    base: exposing({ name: 'http', port: 80 }),
    variant: exposing({ name: 'http', port: 81 }),
  },
  image: { variant: { image: 'nginx:alpine' } },
  command: { variant: { command: ['other'] } },
  args: { variant: { args: ['--flag'] } },
  env: { variant: { env: { COLOUR: 'blue' } } },
  working_dir: { variant: { workingDir: '/srv' } },
  'ports.name': {
    base: { ports: [{ containerPort: 80 }] },
    variant: { ports: [{ containerPort: 80, name: 'web' }] },
  },
  'ports.container_port': {
    base: { ports: [{ containerPort: 80, name: 'web' }] },
    variant: { ports: [{ containerPort: 81, name: 'web' }] },
  },
  'ports.protocol': {
    base: { ports: [{ containerPort: 80 }] },
    variant: { ports: [{ containerPort: 80, protocol: 'UDP' }] },
  },
  'ports.host_port': ofImage(
    { ports: [{ containerPort: 80 }] },
    { ports: [{ containerPort: 80, hostPort: 80 }] },
  ),
  'resources.requests.cpu_millis': { variant: { resources: { requests: { cpuMillis: 9_000 } } } },
  'resources.requests.memory_bytes': {
    variant: { resources: { requests: { memoryBytes: '99000000000' } } },
  },
  'resources.limits.cpu_millis': { variant: { resources: { limits: { cpuMillis: 500 } } } },
  'resources.limits.memory_bytes': {
    variant: { resources: { limits: { memoryBytes: '500000000' } } },
  },
  'resources.limits.pids': ofImage({}, { resources: { limits: { pids: 50 } } }),
  'resources.requests.pids': {
    variant: { resources: { requests: { pids: 50 } } },
    ...{ rejectionText: 'spec.resources.requests.pids', code: 3 },
  },
  'resources.requests.storage_bytes': {
    variant: { resources: { requests: { storageBytes: '90000000000' } } },
  },
  'resources.requests.bandwidth_bps': {
    variant: { resources: { requests: { bandwidthBps: '1000' } } },
  },
  'resources.requests.custom': {
    variant: { resources: { requests: { custom: { 'example.com/license': '1' } } } },
  },
  'resources.limits.custom': {
    variant: { resources: { limits: { custom: { 'example.com/license': '1' } } } },
    ...{ rejectionText: 'spec.resources.limits.custom', code: 3 },
  },
  ...Object.fromEntries(
    ['requests', 'limits'].flatMap((kind) =>
      (
        [
          ['storage_bytes', { storageBytes: '1' }],
          ['bandwidth_bps', { bandwidthBps: '1' }],
          ['gpus', { gpus: 1 }],
        ] as const
      )
        .filter(([leaf]) => kind === 'limits' || leaf === 'gpus')
        .map(([leaf, list]): [string, Row] => [
          `resources.${kind}.${leaf}`,
          {
            variant: { resources: { [kind]: list } },
            rejectionText: `spec.resources.${kind}.${leaf}`,
          },
        ]),
    ),
  ),
  replicas: { variant: { replicas: 4 } },
  'placement.regions': {
    base: { replicas: 1 },
    variant: { replicas: 1, placement: { regions: ['west'] } },
  },
  'placement.zones': {
    base: { replicas: 1 },
    variant: { replicas: 1, placement: { zones: ['zone-c'] } },
  },
  'placement.locality': {
    base: { placement: { zones: ['zone-x'] } },
    variant: { placement: { zones: ['zone-x'], locality: 'PREFERRED' } },
  },
  'placement.node_selector': { variant: { placement: { nodeSelector: { disk: 'ssd' } } } },
  ...affinityRows('affinity'),
  ...affinityRows('anti_affinity'),
  'placement.tolerations.key': {
    base: { placement: withToleration({ key: 'other', value: 'gpu' }) },
    variant: { placement: withToleration({ key: 'dedicated', value: 'gpu' }) },
  },
  'placement.tolerations.operator': {
    base: { placement: withToleration({ key: 'dedicated' }) },
    variant: { placement: withToleration({ key: 'dedicated', operator: 'EXISTS' }) },
  },
  'placement.tolerations.value': {
    base: { placement: withToleration({ key: 'dedicated', value: 'db' }) },
    variant: { placement: withToleration({ key: 'dedicated', value: 'gpu' }) },
  },
  'placement.tolerations.effect': {
    base: { placement: withToleration({ key: 'dedicated', value: 'gpu', effect: 'NO_EXECUTE' }) },
    variant: {
      placement: withToleration({ key: 'dedicated', value: 'gpu', effect: 'NO_SCHEDULE' }),
    },
  },
  'placement.tolerations.toleration_period': {
    base: { placement: { tolerations: [{ key: 'evil', value: 'yes' }] } },
    variant: {
      placement: { tolerations: [{ key: 'evil', value: 'yes', tolerationPeriod: '1s' }] },
    },
    world: 'evicting',
  },
  'placement.spread.topology': {
    base: { placement: { spread: { topology: 'zone' } } },
    variant: { placement: { spread: { topology: 'rack' } } },
  },
  'placement.spread.mode': {
    base: { placement: { spread: { topology: 'rack' } } },
    variant: { placement: { spread: { topology: 'rack', mode: 'REQUIRED' } } },
  },
  'placement.spread.max_skew': {
    base: withFullWestNode({ topology: 'region', mode: 'REQUIRED' }),
    variant: withFullWestNode({ topology: 'region', mode: 'REQUIRED', maxSkew: 2 }),
  },
  priority: { base: { priority: 10 }, variant: { priority: 90 }, world: 'contended' },
  'restart.policy': { variant: { restart: { policy: 'ON_FAILURE' } } },
  'restart.max_retries': { variant: { restart: { maxRetries: 2 } } },
  termination_grace_period: { variant: { terminationGracePeriod: '3s' } },
  pre_stop_delay: { variant: { preStopDelay: '3s' } },
  'rollout.strategy': { variant: { rollout: { strategy: 'RECREATE' } } },
  'rollout.max_surge': { variant: { rollout: { maxSurge: 2 } } },
  'rollout.max_unavailable': {
    base: { replicas: 4 },
    variant: { replicas: 4, rollout: { maxUnavailable: 3 } },
  },
  'rollout.min_available': { variant: { rollout: { minAvailable: 3 } } },
  'rollout.min_ready_duration': { variant: { rollout: { minReadyDuration: '4s' } } },
  'rollout.progress_deadline': {
    base: { rollout: { maxFailedNew: 100 } },
    variant: { rollout: { maxFailedNew: 100, progressDeadline: '2s' } },
    world: 'failing',
  },
  'rollout.max_failed_new': { variant: { rollout: { maxFailedNew: 1 } }, world: 'failing' },
  'rollout.max_failed_new_percent': {
    variant: { rollout: { maxFailedNewPercent: 1 } },
    world: 'failing',
  },
  'rollout.on_failure': { variant: { rollout: { onFailure: 'ROLLBACK' } }, world: 'failing' },
  'rollout.pause_duration': {
    base: { rollout: { strategy: 'BLUE_GREEN' } },
    variant: { rollout: { strategy: 'BLUE_GREEN', pauseDuration: '2s' } },
  },
  'rollout.promotion': {
    base: { rollout: { strategy: 'BLUE_GREEN' } },
    variant: { rollout: { strategy: 'BLUE_GREEN', promotion: 'MANUAL' } },
  },
  'rollout.steps.replicas': withSteps({ replicas: 1, wait: '2s' }, { replicas: 2, wait: '2s' }),
  'rollout.steps.percent': withSteps({ percent: 20, wait: '2s' }, { percent: 60, wait: '2s' }),
  'rollout.steps.wait': withSteps({ replicas: 1, wait: '1s' }, { replicas: 1, wait: '3s' }),
  'rollout.steps.gate': withSteps(
    { replicas: 1, wait: '1s' },
    { replicas: 1, wait: '1s', gate: 'requests_per_s > 0' },
  ),
  'rollout.steps.weight_percent': {
    base: {
      ...exposing({ name: 'http', port: 80 }),
      rollout: { steps: [{ replicas: 1, wait: '2s' }] },
    },
    variant: {
      ...exposing({ name: 'http', port: 80 }),
      rollout: { steps: [{ replicas: 1, wait: '2s', weightPercent: 10 }] },
    },
  },
  'rollout.steps.promotion': withSteps({ replicas: 1 }, { replicas: 1, promotion: 'MANUAL' }),
  'disconnect.mode': { variant: { disconnect: { mode: 'EXCLUSIVE' } }, world: 'cutOff' },
  'disconnect.lost_after': { variant: { disconnect: { lostAfter: '2s' } }, world: 'cutOff' },
  'disconnect.stop_after': {
    base: { disconnect: { mode: 'EXCLUSIVE', stopAfter: '3s', lostAfter: '20s' } },
    variant: { disconnect: { mode: 'EXCLUSIVE', stopAfter: '4s', lostAfter: '20s' } },
    world: 'cutOff',
  },
  labels: { variant: { labels: { team: 'a' } } },
  annotations: { variant: { annotations: { note: 'a' } } },
  runtime: { variant: { runtime: 'process' } },
  mode: { base: { replicas: null }, variant: { replicas: null, mode: 'GLOBAL' } },
  ...probeRows('liveness_probe', 'livenessProbe'),
  ...probeRows('readiness_probe', 'readinessProbe'),
  ...probeRows('startup_probe', 'startupProbe'),
  ...Object.fromEntries(
    Object.entries({
      run_as_non_root: { runAsNonRoot: true },
      run_as_user: { runAsUser: '1' },
      read_only_root_filesystem: { readOnlyRootFilesystem: true },
      capabilities_add: { capabilitiesAdd: ['NET_ADMIN'] },
      capabilities_drop: { capabilitiesDrop: ['ALL'] },
      seccomp_profile: { seccompProfile: 'Unconfined' },
      apparmor_profile: { apparmorProfile: 'localhost/web' },
      selinux_options: { selinuxOptions: '::container_t:' },
      privileged: { privileged: true },
      no_new_privileges: { noNewPrivileges: false },
      runtime_class: { runtimeClass: 'runsc' },
    }).map(([leaf, security]): [string, Row] => [`security.${leaf}`, ofImage({}, { security })]),
  ),
  'security.run_as_group': ofImage(
    { security: { runAsUser: '1' } },
    { security: { runAsUser: '1', runAsGroup: '1' } },
  ),
  'volumes.name': ofVolume({}, { name: 'other' }),
  'volumes.mount_path': ofVolume({}, { mountPath: '/other' }),
  'volumes.read_only': ofVolume({}, { readOnly: true }),
  'volumes.host_path.path': ofVolume(
    { hostPath: { path: '/srv' } },
    { hostPath: { path: '/etc' } },
  ),
  'volumes.named.name': ofVolume({ named: { name: 'data' } }, { named: { name: 'other' } }),
  'volumes.empty_dir.size_limit_bytes': ofVolume(
    { emptyDir: { medium: 'MEMORY' } },
    { emptyDir: { medium: 'MEMORY', sizeLimitBytes: '1' } },
  ),
  'volumes.empty_dir.medium': ofVolume({}, { emptyDir: { medium: 'MEMORY' } }),
  init: ofImage({}, { init: false }),
  identity: ofImage({}, { identity: {} }),
  shm_size_bytes: ofImage({}, { shmSizeBytes: '1048576' }),
  'ulimits.name': ofUlimit({ name: 'nproc' }),
  'ulimits.soft': ofUlimit({ soft: '2000' }),
  'ulimits.hard': ofUlimit({ hard: '2000' }),
  sysctls: ofImage({}, { sysctls: { 'net.ipv4.tcp_fin_timeout': '10' } }),
  'devices.host_path': ofDevice({ hostPath: '/dev/kvm' }),
  'devices.container_path': ofDevice({ containerPath: '/dev/x' }),
  'devices.permissions': ofDevice({ permissions: 'r' }),
  'security.user': ofImage({}, { security: { user: 'nginx' } }),
  'security.supplemental_groups': ofImage({}, { security: { supplementalGroups: ['5'] } }),
  'security.fs_group': ofImage({}, { security: { fsGroup: '5' } }),
  'image_pull.platform': ofImage({}, { imagePull: { platform: 'linux/arm64' } }),
  'network.host_network': ofImage({}, { network: { hostNetwork: true } }),
  'network.hostname': ofImage({}, { network: { hostname: 'x' } }),
  'network.dns_servers': ofImage({}, { network: { dnsServers: ['127.0.0.1'] } }),
  'network.extra_hosts.ip': ofImage(
    { network: { extraHosts: [{ ip: '192.0.2.1', hostnames: ['db'] }] } },
    { network: { extraHosts: [{ ip: '192.0.2.2', hostnames: ['db'] }] } },
  ),
  'network.extra_hosts.hostnames': ofImage(
    { network: { extraHosts: [{ ip: '192.0.2.1', hostnames: ['db'] }] } },
    { network: { extraHosts: [{ ip: '192.0.2.1', hostnames: ['cache'] }] } },
  ),
  'network.egress.allowed.cidr': ofEgress({ cidr: '192.0.2.7' }, { cidr: '192.0.2.8' }),
  'network.egress.allowed.service': ofEgress({ service: 'shop/db' }, { service: 'shop/web' }),
  'network.egress.allowed.ports.protocol': ofEgress(
    { cidr: '192.0.2.7', ports: [{ port: 53 }] },
    { cidr: '192.0.2.7', ports: [{ port: 53, protocol: 'UDP' }] },
  ),
  'network.egress.allowed.ports.port': ofEgress(
    { cidr: '192.0.2.7', ports: [{ port: 80 }] },
    { cidr: '192.0.2.7', ports: [{ port: 81 }] },
  ),
  'network.egress.allowed.ports.end_port': ofEgress(
    { cidr: '192.0.2.7', ports: [{ port: 80 }] },
    { cidr: '192.0.2.7', ports: [{ port: 80, endPort: 90 }] },
  ),
  'image_pull.policy': ofImage({}, { imagePull: { policy: 'ALWAYS' } }),
  'image_pull.secret': ofImage({}, { imagePull: { secret: 'registry' } }),
  ...filesRows('secrets'),
  ...filesRows('configs'),
  'secrets.audience': ofImage(
    { secrets: [{ name: 'x' }] },
    { secrets: [{ name: 'x', audience: 'a' }] },
  ),
};

/** Leaf fields without a row, each with the reason. */
const exceptions: Readonly<Record<string, string>> = {
  restarted_at: 'changes nothing but the version: another time is another template, tested below',
};

const SUBJECT = 'subject';
const PLAIN_SPEC: JsonObject = {
  command: ['serve'],
  replicas: 3,
  rollout: { minReadyDuration: '1s' },
};

/** Returns the parts of an order that decide which secrets and configs the agent fetches, and where. */
function listFiles({ order }: Order): unknown {
  const spec = order.case === 'start' ? order.value.spec : undefined;
  return [spec?.secrets, spec?.configs, spec?.imagePull?.secret];
}

/**
 * Returns everything that a spec causes: requests to the agents, their nodes, endpoints of services
 * as network proxies receive them, and the course of an update, without ids.
 */
async function outcomeOf(fields: JsonObject, world: Row['world']): Promise<unknown> {
  const rollout = {
    ...(PLAIN_SPEC['rollout'] as JsonObject),
    ...(fields['rollout'] as JsonObject | undefined),
  };
  const spec = fromJson(WorkloadSpecSchema, { ...PLAIN_SPEC, ...fields, rollout });
  const cluster = await TestCluster.start();
  const submit = async (name: string, submitted: typeof spec): Promise<void> =>
    void (await cluster.complete(() => cluster.client.createWorkload({ name, spec: submitted })));
  if (world === 'contended') {
    const big = { requests: { cpuMillis: 3_000 } };
    const rival = fromJson(WorkloadSpecSchema, { command: ['rival'], resources: big });
    await submit('rival', rival);
    await submit(SUBJECT, Object.assign(spec, { replicas: 1, resources: rival.resources }));
    await cluster.addNode('node-a');
  } else if (world === 'containers') {
    await cluster.complete(() => putFiles(cluster));
    await cluster.addNode('node-a', { capabilities: [...listRequiredCapabilities(spec)] });
    await submit(SUBJECT, Object.assign(spec, { replicas: 1 }));
  } else if (world === 'evicting') {
    for (const nodeId of ['node-a', 'node-b']) await cluster.addNode(nodeId);
    await submit(SUBJECT, spec);
  } else if (world === 'cutOff') {
    const capabilities = ['runtime.process', 'disconnect.exclusive'];
    for (const nodeId of ['node-a', 'node-b']) await cluster.addNode(nodeId, { capabilities });
    await submit(SUBJECT, spec);
  } else {
    await cluster.addNode('node-a', {
      zone: 'zone-a',
      region: 'east',
      labels: { disk: 'hdd', rack: '1' },
    });
    await cluster.addNode('node-b', {
      zone: 'zone-b',
      region: 'east',
      labels: { disk: 'ssd', tier: 'ssd', rack: '1' },
    });
    await cluster.addNode('node-c', {
      zone: 'zone-c',
      region: 'west',
      labels: { disk: 'hdd', rack: '2' },
    });
    const taints = [{ key: 'dedicated', value: 'gpu', effect: Taint_Effect.NO_SCHEDULE }];
    await cluster.addNode('node-d', {
      zone: 'zone-d',
      region: 'east',
      labels: { tainted: 'yes' },
      taints,
    });
    await submit(
      'database',
      fromJson(WorkloadSpecSchema, {
        command: ['db'],
        labels: { app: 'db' },
        placement: { zones: ['zone-b'] },
      }),
    );
    await cluster.advance(200);
    await submit(SUBJECT, spec);
  }
  if (world === 'failing') {
    for (const agent of cluster.agents.values())
      agent.onStart = ({ version }) => (version === 2 ? 'fails' : 'ready');
  }
  const proxy = new SimulatedProxy('node-a');
  proxy.connect(cluster);
  const trace: unknown[] = [];
  const recordStatus = async (): Promise<void> => {
    const { status } = await cluster.complete(() => cluster.client.getWorkload({ name: SUBJECT }));
    trace.push([
      status?.phase,
      status?.readyReplicas,
      status?.updatedReplicas,
      status?.totalReplicas,
      status?.replicas.filter(({ stale, phase }) => stale && phase === Phase.RUNNING).length,
      withoutIds(status?.reason ?? ''),
      [status?.rollout?.phase, withoutIds(status?.rollout?.reason ?? ''), status?.activeVersion],
      [...proxy.endpoints.values()]
        .map(({ version, ready, weight }) => `${version} ${ready} ${weight}`)
        .sort(),
    ]);
  };
  await cluster.advance(300);
  await recordStatus();
  const { nodes } = await cluster.complete(() => cluster.client.explainWorkload({ name: SUBJECT }));
  const placed = await cluster.complete(() => cluster.client.getWorkload({ name: SUBJECT }));
  await cluster.advance(5_000);
  await cluster.complete(() =>
    cluster.client.updateWorkload({
      name: SUBJECT,
      spec: { env: { ...spec.env, UPDATED: 'yes' } },
    }),
  );
  if (world === 'evicting') {
    const setTaints = [{ key: 'evil', value: 'yes', effect: Taint_Effect.NO_EXECUTE }];
    await cluster.complete(() => cluster.client.updateNode({ nodeId: 'node-a', setTaints }));
  }
  if (world === 'cutOff') cluster.agents.get('node-a')!.sendsPings = false;
  for (let step = 0; step < 25; step += 1) {
    await cluster.advance(300, 50);
    await recordStatus();
  }
  proxy.disconnect();
  const orders = [...cluster.agents.values()].flatMap(({ nodeId, started }) =>
    started
      .filter(({ order }) => order.case === 'start' && order.value.workload === SUBJECT)
      .map((order) => {
        const orderWithoutIds = Object.assign(order, {
          replicaId: 'id',
          workloadUid: 'uid',
          orderRevision: 0n,
          epoch: 0n,
        });
        const identity = { path: '/identity', inMemory: true };
        // The references are compared in `files`; their values come from the node.
        const access = { directory: undefined, mounts: [], env: {}, secretEnv: {} };
        const place = {
          ...{ clusterId: 'c', nodeId, identity, files: access },
          containerId: toContainerId('0'.repeat(64)),
          serviceAddresses: new Map([
            [
              'shop/db',
              [{ address: '10.96.0.7', ports: [{ protocol: 'tcp' as const, port: 80 }] }],
            ],
          ]),
        };
        return {
          nodeId,
          files: listFiles(orderWithoutIds),
          request: toContainerRequest(orderWithoutIds, place),
          plan: toReplicaTarget(orderWithoutIds),
        };
      }),
  );
  return {
    trace,
    orders,
    nodes: nodes.map(({ nodeId, fits, reason, score, terms }) => ({
      nodeId,
      fits,
      reason,
      score,
      terms,
    })),
    services: [...cluster.state.view().services()].map(({ value }) => value.spec),
    placed: placed.status?.replicas.map(({ nodeId, slot, reason }) => ({ nodeId, slot, reason })),
  };
}

const cachedOutcomes = new Map<string, Promise<unknown>>();

/** Caches outcomes, because many rows start from the same spec. */
function cachedOutcome(fields: JsonObject, world: Row['world']): Promise<unknown> {
  const key = JSON.stringify([fields, world]);
  const outcome = cachedOutcomes.get(key) ?? outcomeOf(fields, world);
  cachedOutcomes.set(key, outcome);
  return outcome;
}

const withoutIds = (text: string): string => text.replaceAll(/[0-9a-f]{16}-\d+/g, '<replica>');

const asText = (value: unknown): string =>
  JSON.stringify(value, (_key, inner: unknown) =>
    typeof inner === 'bigint'
      ? String(inner)
      : inner === Number.POSITIVE_INFINITY
        ? 'Infinity'
        : inner,
  );

describe('leaf fields of a workload spec', () => {
  it('each have a row, or an exception with a reason', () => {
    const leaves = leavesOf(WorkloadSpecSchema);
    expect([...Object.keys(rows), ...Object.keys(exceptions)].sort()).toEqual([...leaves].sort());
    expect(Object.keys(exceptions).length).toBeLessThanOrEqual(5);
  });

  it('give equal outcomes for equal specs, so that a difference is meaningful', async () => {
    expect(asText(await outcomeOf({}, undefined))).toBe(asText(await outcomeOf({}, undefined)));
  });

  it.each(Object.entries(rows).filter(([, { rejectionText }]) => rejectionText === undefined))(
    'change the outcome: %s',
    async (_path, row) => {
      const before = await cachedOutcome(row.base ?? {}, row.world);
      const after = await outcomeOf(row.variant, row.world);
      expect(asText(after)).not.toBe(asText(before));
    },
  );

  it.each(Object.entries(rows).filter(([, { rejectionText }]) => rejectionText !== undefined))(
    'are rejected by name: %s',
    async (_path, { variant, rejectionText, code = 12 }) => {
      const cluster = await TestCluster.start();
      const spec = fromJson(WorkloadSpecSchema, { ...PLAIN_SPEC, ...variant });
      const attempt = cluster.complete(() =>
        cluster.client.createWorkload({ name: SUBJECT, spec }),
      );
      await expect(attempt).rejects.toMatchObject({
        code,
        rawMessage: expect.stringContaining(rejectionText ?? '') as unknown,
      });
      expect((await cluster.complete(() => cluster.client.listWorkloads({}))).workloads).toEqual(
        [],
      );
    },
  );

  it('include restarted_at, which makes a new version and replaces the replicas', async () => {
    const cluster = await TestCluster.start();
    await cluster.addNode('node-a');
    await cluster.complete(() =>
      cluster.client.createWorkload({
        name: SUBJECT,
        spec: create(WorkloadSpecSchema, { command: ['serve'] }),
      }),
    );
    await cluster.advance(3_000);
    const before = await cluster.complete(() => cluster.client.getWorkload({ name: SUBJECT }));
    await cluster.complete(() =>
      cluster.client.updateWorkload({ name: SUBJECT, spec: { restartedAt: { seconds: 1n } } }),
    );
    await cluster.advance(10_000);
    const after = await cluster.complete(() => cluster.client.getWorkload({ name: SUBJECT }));
    expect(after.status).toMatchObject({ version: 2, readyReplicas: 1, totalReplicas: 1 });
    expect(after.status?.replicas[0]?.id).not.toBe(before.status?.replicas[0]?.id);
  });
});
