import { isFieldSet } from '@bufbuild/protobuf';
import {
  SecurityContextSchema,
  Volume_EmptyDir_Medium as Medium,
  Reload_Mode as ReloadMode,
  type SecurityContext,
  type Volume,
  type WorkloadSpec,
} from '../gen.js';
import { resolveDisconnectTimes } from './defaults.js';
import { EGRESS_CAPABILITY } from './egress-rules.js';
import {
  FILES_CAPABILITY,
  FILES_SIGNAL_CAPABILITY,
  IMAGE_CREDENTIALS_CAPABILITY,
} from './files-rules.js';
import { requestsIdentity, WORKLOAD_IDENTITY_CAPABILITY } from './workload-identity.js';

/** Capability of a node that allows at least one host path. */
export const HOST_PATHS_CAPABILITY = 'volumes.hostpath';

/** Capability that a node needs for each kind of volume. */
const VOLUME_CAPABILITIES: Readonly<Record<NonNullable<Volume['source']['case']>, string>> = {
  emptyDir: 'volumes.emptydir',
  hostPath: HOST_PATHS_CAPABILITY,
  named: 'volumes.named',
};

/**
 * Start of the capability that names a host path: `host-path./srv/data`. A node names the directories
 * that its agent allows, and offers every path in them.
 */
export const HOST_PATH_CAPABILITY = 'host-path.';

/**
 * Returns the capabilities that a node needs to run replicas of a template. The scheduler places a
 * replica only on a node with all of them. Plain names are abilities of container runtimes. When a
 * process needs an ability that no process runtime has, the name is `process.<name>`; when a
 * container needs an ability that no container runtime has, `cri.<name>`. A node with both runtimes
 * therefore never offers an ability of one runtime for a replica of the other.
 * @param template - The replica template.
 * @param spec - The current spec, which contains `disconnect`. Default: `template`.
 * @returns Names without duplicates, such as `['runtime.cri', 'limits.memory']`.
 */
export function listRequiredCapabilities(
  template: WorkloadSpec,
  spec: Pick<WorkloadSpec, 'disconnect'> | undefined = template,
): readonly string[] {
  const isContainer = template.image !== '' || template.runtime === 'cri';
  const isExclusive = resolveDisconnectTimes(spec).stopAfterMs !== undefined;
  const limits = listLimitCapabilities(template);
  if (!isContainer) {
    return [
      'runtime.process',
      ...limits.map((name) => `process.${name}`),
      ...listFilesCapabilities(template),
      ...(isExclusive ? ['disconnect.exclusive'] : []),
    ];
  }
  return [
    'runtime.cri',
    ...limits,
    ...(template.init === true ? ['container.init'] : []),
    ...(template.shmSizeBytes > 0n ? ['container.shm'] : []),
    ...Object.keys(template.sysctls)
      .sort()
      .map((name) => `sysctl.${name}`),
    ...[...new Set(template.devices.map(({ hostPath }) => `device.${hostPath}`))].sort(),
    ...listImageCapabilities(template),
    ...(template.ulimits.length > 0 ? ['container.ulimits'] : []),
    ...listNetworkCapabilities(template),
    ...listVolumeCapabilities(template),
    ...listFilesCapabilities(template),
    ...(requestsIdentity(template) ? [WORKLOAD_IDENTITY_CAPABILITY] : []),
    ...(template.security === undefined ? [] : listSecurityCapabilities(template.security)),
    ...(isExclusive ? ['cri.disconnect.exclusive'] : []),
  ];
}

function listFilesCapabilities({ secrets, configs }: WorkloadSpec): readonly string[] {
  const refs = [...secrets, ...configs];
  if (refs.length === 0) return [];
  const isSignalled = refs.some(({ reload }) => reload?.mode === ReloadMode.SIGNAL);
  return [FILES_CAPABILITY, ...(isSignalled ? [FILES_SIGNAL_CAPABILITY] : [])];
}

function listImageCapabilities({ imagePull }: WorkloadSpec): readonly string[] {
  const { platform = '', secret = '' } = imagePull ?? {};
  return [
    ...(platform === '' ? [] : [`platform.${platform}`]),
    ...(secret === '' ? [] : [IMAGE_CREDENTIALS_CAPABILITY]),
  ];
}

/** Returns the capabilities for resource limits. A limit of 0 means no limit. */
function listLimitCapabilities({ resources }: WorkloadSpec): readonly string[] {
  const { cpuMillis = 0, memoryBytes = 0n, pids = 0 } = resources?.limits ?? {};
  return [
    ...(cpuMillis > 0 ? ['limits.cpu'] : []),
    ...(memoryBytes > 0n ? ['limits.memory'] : []),
    ...(pids > 0 ? ['limits.pids'] : []),
  ];
}

/**
 * Returns the capabilities for the network. With `host_network`, host ports need no port mapping.
 */
function listNetworkCapabilities({ network, ports }: WorkloadSpec): readonly string[] {
  const isHost = network?.hostNetwork === true;
  return [
    ...(isHost ? ['network.host'] : []),
    ...(!isHost && ports.some(({ hostPort }) => hostPort !== 0) ? ['ports.host'] : []),
    ...(network?.egress === undefined ? [] : [EGRESS_CAPABILITY]),
  ];
}

function listVolumeCapabilities({ volumes }: WorkloadSpec): readonly string[] {
  const kinds = volumes.flatMap(({ source }) => {
    if (source.case === undefined) return [];
    const isInMemory = source.case === 'emptyDir' && source.value.medium === Medium.MEMORY;
    return [
      VOLUME_CAPABILITIES[source.case],
      ...(isInMemory ? ['volumes.memory'] : []),
      ...(source.case === 'hostPath' ? [`${HOST_PATH_CAPABILITY}${source.value.path}`] : []),
    ];
  });
  return [...new Set(kinds)].sort();
}

/**
 * Fields of the security context that have a capability of their own. Every other field needs
 * `security.context`.
 */
const FIELDS_WITH_OWN_CAPABILITY: ReadonlySet<string> = new Set([
  ...['apparmor_profile', 'selinux_options', 'privileged', 'runtime_class'],
  ...['user', 'supplemental_groups', 'fs_group'],
]);

function listSecurityCapabilities(security: SecurityContext): readonly string[] {
  const {
    apparmorProfile,
    selinuxOptions,
    privileged,
    runtimeClass,
    user,
    supplementalGroups,
    fsGroup,
  } = security;
  const hasContext = SecurityContextSchema.fields.some(
    (field) => !FIELDS_WITH_OWN_CAPABILITY.has(field.name) && isFieldSet(security, field),
  );
  return [
    ...(hasContext ? ['security.context'] : []),
    ...(user === '' ? [] : ['security.username']),
    ...(supplementalGroups.length > 0 || fsGroup !== undefined ? ['security.groups'] : []),
    ...(apparmorProfile === '' ? [] : ['security.apparmor']),
    ...(selinuxOptions === '' ? [] : ['security.selinux']),
    ...(privileged ? ['security.privileged'] : []),
    ...(runtimeClass === '' ? [] : [`runtime-class.${runtimeClass}`]),
  ];
}
