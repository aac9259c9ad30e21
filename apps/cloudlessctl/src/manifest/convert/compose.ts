import { convertDeploy, convertLimits } from './compose-deploy.js';
import {
  convertHealthCheck,
  convertPorts,
  convertUlimits,
  convertVolumes,
  toComposeSize,
} from './compose-parts.js';
import { interpolate } from './interpolate.js';
import { SourceMap, isMap, withoutEmpty } from './source-map.js';
import type { ReportNote } from './source-map.js';
import { convertServiceSecrets, reportSecrets } from './compose-secrets.js';
import { createServices, declareExposed, reportUnreachable } from './compose-service.js';
import type { ConvertedObject, ConvertedWorkload } from './converted-object.js';
import { splitWords, toDnsLabel } from './words.js';

/** Returns true when a document of a file is a Compose file. */
export function isComposeFile(document: unknown): boolean {
  return isMap(document) && 'services' in document && !('apiVersion' in document);
}

/** Replacement for each key of a service without an equivalent, for the note. */
const SERVICE_REASONS: Readonly<Record<string, string>> = {
  build: 'build and push the image first, then set image',
  configs:
    'a config of a workload is a directory: create the config with "cloudlessctl config create", and name the config in spec.configs',
  container_name: 'replicas are named by the cluster',
  depends_on:
    'workloads start at the same time; give each a readinessProbe, and let programs retry their connections',
  env_file: 'write the variables into env, or use "cloudlessctl workload create --env-file"',
  extends:
    'only the keys that are written here are converted; "docker compose config" prints a file without extends',
  links: 'services reach each other by their names, not by other names',
  logging: 'every node keeps the output of containers; see "cloudlessctl logs"',
  networks: 'all containers of a cluster share one network',
  profiles: 'keep such services in files of their own',
  stdin_open: 'containers have no standard input; use "cloudlessctl exec -it"',
  tty: 'containers have no terminal; use "cloudlessctl exec -it"',
};

const FILE_REASONS: Readonly<Record<string, string>> = {
  include: 'convert the included files too; "docker compose config" prints one file',
  networks: SERVICE_REASONS['networks'] ?? '',
  configs: SERVICE_REASONS['configs'] ?? '',
};

/**
 * Converts the services of a Compose file to workloads, and to services for those with ports.
 * @param env - Values of the variables in the file.
 */
export function convertCompose(
  document: unknown,
  env: Readonly<Record<string, string | undefined>>,
  report: ReportNote,
): readonly ConvertedObject[] {
  const file = new SourceMap(interpolate(document, env, report), [], report);
  file.ignore('version');
  const secretName = `${toDnsLabel(file.takeText('name') ?? 'app')}-secrets`;
  reportSecrets(file, secretName);
  const services = file.takeMap('services');
  const volumes = file.takeMap('volumes');
  for (const name of volumes.keys) {
    const volume = volumes.takeMap(name);
    volume.ignore('name', 'external', 'labels');
    if (volume.takeText('driver') !== 'local') volume.ignore('driver');
    volume.finish();
  }
  file.finish(FILE_REASONS);
  const workloads = new Map<string, ConvertedWorkload>();
  for (const name of services.keys) {
    const label = toDnsLabel(name);
    if (label !== name) services.note(name, `renamed to ${label}: names are DNS labels`);
    const service = services.takeMap(name);
    const workload = {
      ...({ kind: 'Workload', namespace: undefined, name: label, podLabels: {} } as const),
      spec: convertService(service, secretName),
    };
    declareExposed(service, workload);
    service.finish(SERVICE_REASONS);
    workloads.set(name, workload);
  }
  reportUnreachable(services, workloads);
  return [...workloads.values()].flatMap((workload) => [workload, ...createServices(workload)]);
}

function convertService(service: SourceMap, secretName: string): Record<string, unknown> {
  const deploy = service.takeMap('deploy');
  const deployed = convertDeploy(deploy);
  const limits = convertLimits(service);
  const replicas = service.takeInteger('scale');
  const volumes = convertVolumes(service);
  const spec = withoutEmpty({
    image: service.takeText('image'),
    command: takeCommand(service, 'entrypoint'),
    args: takeCommand(service, 'command'),
    env: takePairs(service, 'environment'),
    workingDir: service.takeText('working_dir'),
    ports: convertPorts(service),
    ...(replicas === undefined ? {} : { replicas }),
    ...deployed,
    resources: mergeResources(limits, deployed['resources']),
    restart: deployed['restart'] ?? convertRestart(service),
    terminationGracePeriod: service.takeText('stop_grace_period'),
    livenessProbe: convertHealthCheck(service.takeMap('healthcheck')),
    annotations: takePairs(service, 'labels'),
    security: convertSecurity(service),
    volumes,
    secrets: convertServiceSecrets(service, secretName),
    network: convertNetwork(service),
    imagePull: convertImagePull(service),
    init: service.takeFlag('init'),
    shmSizeBytes: toComposeSize(service, 'shm_size'),
    ulimits: convertUlimits(service.takeMap('ulimits')),
    sysctls: takePairs(service, 'sysctls'),
    devices: service.takeTexts('devices').map((device) => {
      const [hostPath, containerPath, permissions] = device.split(':');
      return withoutEmpty({ hostPath, containerPath, permissions });
    }),
  });
  if (spec['image'] === undefined) {
    service.note('image', 'is missing: set the image of the workload');
    spec['image'] = 'REPLACE-ME';
  }
  // Two replicas must not write the same files: as Compose does, the old one stops first.
  if (volumes.some(({ named }) => named !== undefined))
    spec['rollout'] ??= { maxSurge: 0, maxUnavailable: 1 };
  const signal = service.takeText('stop_signal');
  if (signal !== undefined && !/^(SIG)?TERM$/.test(signal))
    service.note('stop_signal', 'has no equivalent: containers are stopped with SIGTERM');
  return spec;
}

/** Returns a command as words. A text is split as a shell does. */
function takeCommand(service: SourceMap, key: string): readonly string[] {
  const value = service.take(key);
  if (typeof value !== 'string') return service.takeTexts(key);
  const words = splitWords(value);
  if ('value' in words) return words.value;
  service.note(key, `left out: ${words.problem}`);
  return [];
}

/** Returns the pairs of a map, or of a list of `KEY=value`. */
function takePairs(service: SourceMap, key: string): Readonly<Record<string, string>> {
  const value = service.take(key);
  if (!Array.isArray(value)) return service.takeMap(key).takePairs();
  return Object.fromEntries(
    service.takeTexts(key).flatMap((line) => {
      const separator = line.indexOf('=');
      if (separator > 0) return [[line.slice(0, separator), line.slice(separator + 1)]];
      service.note(key, `${line} has no value and was left out: set the value`);
      return [];
    }),
  );
}

function convertRestart(service: SourceMap): Record<string, unknown> {
  const [policy, retries] = (service.takeText('restart') ?? '').split(':');
  switch (policy) {
    case '': // Compose does not restart by default; a cluster does.
    case 'always':
    case 'unless-stopped':
      return {};
    case 'on-failure':
      return withoutEmpty({
        policy: 'ON_FAILURE',
        maxRetries: retries === undefined ? undefined : Number(retries),
      });
    case 'no':
    case 'false':
      return { policy: 'NEVER' };
    default:
      service.note('restart', `left out: unknown policy ${JSON.stringify(policy)}`);
      return {};
  }
}

function convertSecurity(service: SourceMap): Record<string, unknown> {
  const [user = '', group] = (service.takeText('user') ?? '').split(':');
  const isNumeric = /^\d+$/.test(user);
  if (group !== undefined && !/^\d+$/.test(group))
    service.note('user', `the group ${group} was left out: use a numeric group`);
  return withoutEmpty({
    ...(isNumeric ? { runAsUser: Number(user) } : { user: user === '' ? undefined : user }),
    runAsGroup: group !== undefined && /^\d+$/.test(group) ? Number(group) : undefined,
    supplementalGroups: service.takeTexts('group_add').flatMap((name) => {
      if (/^\d+$/.test(name)) return [Number(name)];
      service.note('group_add', `the group ${name} was left out: use a numeric group`);
      return [];
    }),
    readOnlyRootFilesystem: service.takeFlag('read_only'),
    capabilitiesAdd: service.takeTexts('cap_add'),
    capabilitiesDrop: service.takeTexts('cap_drop'),
    privileged: service.takeFlag('privileged'),
    ...convertSecurityOptions(service),
  });
}

function convertSecurityOptions(service: SourceMap): Record<string, unknown> {
  const fields: Record<string, unknown> = {};
  for (const option of service.takeTexts('security_opt')) {
    const [name = '', value = ''] = option.split(/[:=](.*)/s);
    if (name === 'no-new-privileges') fields['noNewPrivileges'] = value !== 'false';
    else if (name === 'seccomp' && value === 'unconfined') fields['seccompProfile'] = 'Unconfined';
    else if (name === 'apparmor' && value === 'unconfined')
      fields['apparmorProfile'] = 'Unconfined';
    else service.note('security_opt', `${option} has no equivalent`);
  }
  return fields;
}

function convertNetwork(service: SourceMap): Record<string, unknown> {
  const mode = service.takeText('network_mode');
  if (mode !== undefined && mode !== 'host' && mode !== 'bridge')
    service.note(
      'network_mode',
      `${mode} has no equivalent: containers have a network of their own`,
    );
  return withoutEmpty({
    hostNetwork: mode === 'host' ? true : undefined,
    hostname: service.takeText('hostname'),
    dnsServers: service.takeTexts('dns'),
    extraHosts: convertExtraHosts(service),
  });
}

function convertExtraHosts(service: SourceMap): readonly Record<string, unknown>[] {
  const value = service.take('extra_hosts');
  const pairs = isMap(value)
    ? Object.entries(service.takeMap('extra_hosts').takePairs())
    : service.takeTexts('extra_hosts').map((line) => line.split(/[:=](.*)/s));
  return pairs.flatMap(([hostname = '', ip = '']) => {
    if (ip !== 'host-gateway')
      return [{ ip: ip.replaceAll(/^\[|\]$/g, ''), hostnames: [hostname] }];
    service.note('extra_hosts', `${hostname}: host-gateway has no equivalent; write the address`);
    return [];
  });
}

function convertImagePull(service: SourceMap): Record<string, unknown> {
  const policy = service.takeText('pull_policy');
  const names: Readonly<Record<string, string>> = {
    always: 'ALWAYS',
    never: 'NEVER',
    missing: 'IF_NOT_PRESENT',
    if_not_present: 'IF_NOT_PRESENT',
  };
  if (policy !== undefined && names[policy] === undefined)
    service.note('pull_policy', `${policy} has no equivalent`);
  return withoutEmpty({
    policy: policy === undefined ? undefined : names[policy],
    platform: service.takeText('platform'),
  });
}

/** The settings below `deploy` replace those of the service, as in Compose. */
function mergeResources(
  limits: Record<string, unknown>,
  deployed: unknown,
): Record<string, unknown> {
  if (!isMap(deployed)) return limits;
  return withoutEmpty({
    requests: merge(limits['requests'], deployed['requests']),
    limits: merge(limits['limits'], deployed['limits']),
  });
}

function merge(first: unknown, second: unknown): Record<string, unknown> {
  return { ...(isMap(first) ? first : {}), ...(isMap(second) ? second : {}) };
}
