import { isFieldSet } from '@bufbuild/protobuf';
import { disconnectTimesOf } from './defaults.js';
import {
  SecurityContextSchema,
  Volume_EmptyDir_Medium as Medium,
  type SecurityContext,
  type Volume,
  type WorkloadSpec,
} from './gen.js';

/** What a node must have for each kind of volume. */
const OF_SOURCE: Readonly<Record<NonNullable<Volume['source']['case']>, string>> = {
  emptyDir: 'volumes.emptydir',
  hostPath: 'volumes.hostpath',
  named: 'volumes.named',
};

/**
 * What a spec must find on a node, as the scheduler filters by. Plain names are of containers; what
 * processes would need of their runtime and no process runtime has is called `process.<name>`, and
 * what no container runtime has `cri.<name>`: a node that has both runtimes never takes the word of
 * one for the other.
 * @param template - What replicas are made from.
 * @param spec - Whose `disconnect` holds now: it is not part of a template.
 */
export function capabilitiesOf(
  template: WorkloadSpec,
  spec: Pick<WorkloadSpec, 'disconnect'> | undefined = template,
): readonly string[] {
  const isContainer = template.image !== '' || template.runtime === 'cri';
  const isExclusive = disconnectTimesOf(spec).stopAfterMs !== undefined;
  const limits = limitsOf(template);
  if (!isContainer) {
    return [
      'runtime.process',
      ...limits.map((name) => `process.${name}`),
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
    ...platformOf(template),
    ...(template.ulimits.length > 0 ? ['container.ulimits'] : []),
    ...networkOf(template),
    ...volumesOf(template),
    ...(template.security === undefined ? [] : securityOf(template.security)),
    ...(isExclusive ? ['cri.disconnect.exclusive'] : []),
  ];
}

function platformOf({ imagePull }: WorkloadSpec): readonly string[] {
  const platform = imagePull?.platform ?? '';
  return platform === '' ? [] : [`platform.${platform}`];
}

/** A limit of 0 is none. */
function limitsOf({ resources }: WorkloadSpec): readonly string[] {
  const { cpuMillis = 0, memoryBytes = 0n, pids = 0 } = resources?.limits ?? {};
  return [
    ...(cpuMillis > 0 ? ['limits.cpu'] : []),
    ...(memoryBytes > 0n ? ['limits.memory'] : []),
    ...(pids > 0 ? ['limits.pids'] : []),
  ];
}

/** In the node's own network a port needs nothing that leads to it. */
function networkOf({ network, ports }: WorkloadSpec): readonly string[] {
  if (network?.hostNetwork === true) return ['network.host'];
  return ports.some(({ hostPort }) => hostPort !== 0) ? ['ports.host'] : [];
}

function volumesOf({ volumes }: WorkloadSpec): readonly string[] {
  const kinds = volumes.flatMap(({ source }) => {
    if (source.case === undefined) return [];
    const isInMemory = source.case === 'emptyDir' && source.value.medium === Medium.MEMORY;
    return [OF_SOURCE[source.case], ...(isInMemory ? ['volumes.memory'] : [])];
  });
  return [...new Set(kinds)].sort();
}

/**
 * Fields of the security context that need a capability of their own; the others need
 * `security.context`.
 */
const APART: ReadonlySet<string> = new Set([
  ...['apparmor_profile', 'selinux_options', 'privileged', 'runtime_class'],
  ...['user', 'supplemental_groups', 'fs_group'],
]);

function securityOf(security: SecurityContext): readonly string[] {
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
    (field) => !APART.has(field.name) && isFieldSet(security, field),
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
