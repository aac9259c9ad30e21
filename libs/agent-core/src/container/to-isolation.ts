import {
  ImagePull_Policy as Policy,
  Volume_EmptyDir_Medium as Medium,
  resolveUlimit,
  normalizeCapability,
  parseProfile,
  parseSelinuxOptions,
  type Device,
  type Network,
  type SecurityContext,
  type StartOrder,
  type Ulimit,
  type Volume,
  type Volume_EmptyDir,
  type WorkloadSpec,
} from '@cloudless/api';
import { definedFields, CloudlessError } from '@cloudless/base';
import type {
  ContainerRequest,
  DeviceRequest,
  NetworkRequest,
  PullPolicy,
  SecurityProfile,
  SecurityRequest,
  UlimitRequest,
  VolumeRequest,
} from '@cloudless/runtime';

/**
 * Fields of a request that only containers have: the API accepts them only together with an image.
 */
export type Isolation = Pick<
  ContainerRequest,
  | 'imagePull'
  | 'volumes'
  | 'security'
  | 'network'
  | 'init'
  | 'shmSizeBytes'
  | 'sysctls'
  | 'ulimits'
  | 'devices'
  | 'imagePlatform'
>;

/**
 * Converts the image, volume, network and security fields of a spec.
 * @param owner - Workload whose named volumes the replica uses.
 * @throws kind `invalid` for values that this agent version does not support.
 */
export function toIsolation(
  spec: WorkloadSpec,
  owner: Pick<StartOrder, 'namespace' | 'workload'>,
): Isolation {
  const {
    image,
    imagePull,
    volumes,
    security,
    network,
    init,
    shmSizeBytes,
    sysctls,
    ulimits,
    devices,
  } = spec;
  const platform = imagePull?.platform ?? '';
  return {
    ...(image === ''
      ? {}
      : { imagePull: toPullPolicy(imagePull?.policy ?? Policy.IF_NOT_PRESENT) }),
    ...(volumes.length === 0
      ? {}
      : { volumes: volumes.map((volume) => toVolumeRequest(volume, spec, owner)) }),
    ...(security === undefined ? {} : { security: toSecurityRequest(security) }),
    ...(network === undefined ? {} : { network: toNetworkRequest(network) }),
    ...definedFields({ init }),
    ...(Object.keys(sysctls).length === 0 ? {} : { sysctls }),
    ...(ulimits.length === 0 ? {} : { ulimits: ulimits.map(toUlimitRequest) }),
    ...(devices.length === 0 ? {} : { devices: devices.map(toDeviceRequest) }),
    ...(platform === '' ? {} : { imagePlatform: platform }),
    ...(shmSizeBytes === 0n ? {} : { shmSizeBytes: Number(shmSizeBytes) }),
  };
}

const PULL_POLICIES: Readonly<Record<Policy, PullPolicy>> = {
  [Policy.IF_NOT_PRESENT]: 'ifNotPresent',
  [Policy.ALWAYS]: 'always',
  [Policy.NEVER]: 'never',
};

function toPullPolicy(policy: Policy): PullPolicy {
  return requireKnown(
    'pull policy',
    String(policy),
    (PULL_POLICIES as Partial<Record<Policy, PullPolicy>>)[policy],
  );
}

function toVolumeRequest(
  volume: Volume,
  spec: WorkloadSpec,
  owner: Pick<StartOrder, 'namespace' | 'workload'>,
): VolumeRequest {
  const { name, mountPath, readOnly } = volume;
  return { name, mountPath, readOnly, source: toSource(volume, spec, owner) };
}

/**
 * Named volumes are scoped to their workload: the same name in another workload is another volume.
 */
function toSource(
  { name, source }: Volume,
  spec: WorkloadSpec,
  owner: Pick<StartOrder, 'namespace' | 'workload'>,
): VolumeRequest['source'] {
  switch (source.case) {
    case 'emptyDir':
      return toEmptyDir(source.value, spec);
    case 'hostPath':
      return { kind: 'hostPath', path: source.value.path };
    case 'named':
      return {
        kind: 'named',
        namespace: owner.namespace,
        workload: owner.workload,
        name: source.value.name,
      };
    default:
      throw new CloudlessError(
        'invalid',
        `volume "${name}" has no source that this agent version supports`,
      );
  }
}

function toUlimitRequest(ulimit: Ulimit): UlimitRequest {
  const { soft, hard } = resolveUlimit(ulimit);
  return { name: ulimit.name, soft: Number(soft), hard: Number(hard) };
}

function toDeviceRequest({ hostPath, containerPath, permissions }: Device): DeviceRequest {
  return {
    hostPath,
    containerPath: containerPath === '' ? hostPath : containerPath,
    permissions: permissions === '' ? 'rwm' : permissions,
  };
}

const MEDIA: Readonly<Record<Medium, 'disk' | 'memory'>> = {
  [Medium.DISK]: 'disk',
  [Medium.MEMORY]: 'memory',
};

/**
 * Without a size limit, the volume may use as much memory as the container's limit, which includes
 * its content.
 */
function toEmptyDir(
  { medium, sizeLimitBytes }: Volume_EmptyDir,
  { resources }: WorkloadSpec,
): VolumeRequest['source'] {
  if (requireKnown('medium', String(medium), (MEDIA as Partial<typeof MEDIA>)[medium]) === 'disk')
    return { kind: 'emptyDir' };
  const size = sizeLimitBytes > 0n ? sizeLimitBytes : (resources?.limits?.memoryBytes ?? 0n);
  return { kind: 'emptyDir', memory: size > 0n ? { sizeBytes: Number(size) } : {} };
}

function toSecurityRequest(security: SecurityContext): SecurityRequest {
  const { runAsUser, runAsGroup, runAsNonRoot, readOnlyRootFilesystem, privileged, runtimeClass } =
    security;
  const { capabilitiesAdd, capabilitiesDrop, seccompProfile, apparmorProfile, selinuxOptions } =
    security;
  const { user, supplementalGroups, fsGroup } = security;
  // Container runtimes set `no_new_privileges` unless the request says false. A privileged process
  // could undo the setting, so it would promise nothing.
  const noNewPrivileges = security.noNewPrivileges ?? (privileged ? false : undefined);
  return {
    ...(runAsNonRoot ? { runAsNonRoot } : {}),
    ...(runAsUser === undefined ? {} : { runAsUser: Number(runAsUser) }),
    ...(runAsGroup === undefined ? {} : { runAsGroup: Number(runAsGroup) }),
    ...(user === '' ? {} : { userName: user }),
    ...(supplementalGroups.length === 0
      ? {}
      : { supplementalGroups: supplementalGroups.map(Number) }),
    ...(fsGroup === undefined ? {} : { fsGroup: Number(fsGroup) }),
    ...(readOnlyRootFilesystem ? { readOnlyRootFilesystem } : {}),
    ...(capabilitiesAdd.length === 0
      ? {}
      : { capabilitiesAdd: toCapabilityNames(capabilitiesAdd) }),
    ...(capabilitiesDrop.length === 0
      ? {}
      : { capabilitiesDrop: toCapabilityNames(capabilitiesDrop) }),
    ...(seccompProfile === '' ? {} : { seccomp: toProfile('seccomp', seccompProfile) }),
    ...(apparmorProfile === '' ? {} : { apparmor: toProfile('AppArmor', apparmorProfile) }),
    ...(selinuxOptions === ''
      ? {}
      : {
          selinux: requireKnown(
            'SELinux options',
            selinuxOptions,
            parseSelinuxOptions(selinuxOptions),
          ),
        }),
    ...(privileged ? { privileged } : {}),
    ...definedFields({ noNewPrivileges }),
    ...(runtimeClass === '' ? {} : { runtimeClass }),
  };
}

function toCapabilityNames(texts: readonly string[]): readonly string[] {
  return [
    ...new Set(texts.map((text) => requireKnown('capability', text, normalizeCapability(text)))),
  ];
}

function toProfile(kind: string, text: string): SecurityProfile {
  return requireKnown(`${kind} profile`, text, parseProfile(text));
}

/**
 * Returns `value`, the parsed form of `text`. Rejects a text that this version cannot parse: a
 * container without the setting would have less than the spec requires.
 * @param kind - Name of the field in the error message.
 * @throws kind `invalid` when `value` is undefined.
 */
function requireKnown<Value>(kind: string, text: string, value: Value | undefined): Value {
  if (value === undefined)
    throw new CloudlessError(
      'invalid',
      `${kind} ${JSON.stringify(text)} is not supported by this agent version`,
    );
  return value;
}

function toNetworkRequest({
  hostNetwork,
  hostname,
  dnsServers,
  extraHosts,
}: Network): NetworkRequest {
  return {
    ...(hostNetwork ? { hostNetwork } : {}),
    ...(hostname === '' ? {} : { hostname }),
    ...(dnsServers.length === 0 ? {} : { dnsServers }),
    ...(extraHosts.length === 0
      ? {}
      : { extraHosts: extraHosts.map(({ ip, hostnames }) => ({ ip, hostnames })) }),
  };
}
