import { definedFields, CloudlessError } from '@cloudless/base';
import { EGRESS_CAPABILITY, type ContainerRequest } from '@cloudless/runtime';
import { EGRESS_NEEDS } from '../../egress/egress-filter.js';

/** A field of a request and the capability that it needs. */
interface Requirement {
  readonly field: string;
  readonly capability: string;
  /** Hint for the operator on how to give the capability to the node; begins with `: `. */
  readonly remedy?: string;
}

/**
 * Refuses a request that needs a capability that this node lacks, because the container runtime
 * would ignore the field.
 * @param capabilities - Capabilities of this node.
 * @throws kind `unimplemented`, naming the field and the missing capability.
 */
export function checkRequiredCapabilities(
  request: ContainerRequest,
  capabilities: readonly string[],
): void {
  const missing = listRequirements(request).find(
    ({ capability }) => !capabilities.includes(capability),
  );
  if (missing === undefined) return;
  const { field, capability, remedy = '' } = missing;
  throw new CloudlessError(
    'unimplemented',
    `${field}: this node lacks the capability ${capability}${remedy}`,
  );
}

/** Lists the capabilities that a request needs, each with the field that needs it. */
function listRequirements({
  limits,
  security = {},
  volumes = [],
  init,
  shmSizeBytes,
  sysctls = {},
  devices = [],
  ulimits = [],
  imagePlatform,
  network,
}: ContainerRequest): readonly Requirement[] {
  const { apparmor, selinux, privileged, runtimeClass, userName, supplementalGroups, fsGroup } =
    security;
  const inMemory = volumes.find(
    ({ source }) => source.kind === 'emptyDir' && source.memory !== undefined,
  );
  const hostPath = volumes.find(({ source }) => source.kind === 'hostPath');
  return [
    ...requireIf(limits.cpuMillis !== undefined, 'limits.cpuMillis', 'limits.cpu'),
    ...requireIf(limits.memoryBytes !== undefined, 'limits.memoryBytes', 'limits.memory'),
    ...requireIf(limits.pids !== undefined, 'limits.pids', 'limits.pids'),
    ...requireIf(init === true, 'init', 'container.init'),
    ...requireIf(shmSizeBytes !== undefined, 'shmSizeBytes', 'container.shm'),
    ...requireIf(inMemory !== undefined, `volumes.${inMemory?.name}`, 'volumes.memory'),
    ...Object.keys(sysctls).map((name) => ({
      ...{ field: `sysctls.${name}`, capability: `sysctl.${name}` },
      remedy: `: its agent needs --allow-sysctl ${name}`,
    })),
    ...devices.map(({ hostPath }) => ({
      ...{ field: `devices.${hostPath}`, capability: `device.${hostPath}` },
      remedy: `: its agent needs --allow-device ${hostPath}`,
    })),
    ...requireIf(ulimits.length > 0, 'ulimits', 'container.ulimits'),
    ...requireIf(imagePlatform !== undefined, 'imagePlatform', `platform.${imagePlatform}`),
    ...requireIf(
      network?.egress !== undefined,
      'network.egress',
      EGRESS_CAPABILITY,
      `: ${EGRESS_NEEDS}`,
    ),
    ...requireIf(userName !== undefined, 'security.userName', 'security.username'),
    ...requireIf(
      supplementalGroups !== undefined,
      'security.supplementalGroups',
      'security.groups',
    ),
    ...requireIf(fsGroup !== undefined, 'security.fsGroup', 'security.groups'),
    ...requireIf(apparmor !== undefined, 'security.apparmor', 'security.apparmor'),
    ...requireIf(selinux !== undefined, 'security.selinux', 'security.selinux'),
    ...requireIf(
      privileged === true,
      'security.privileged',
      'security.privileged',
      ': its agent needs --allow-privileged',
    ),
    ...requireIf(
      runtimeClass !== undefined,
      'security.runtimeClass',
      `runtime-class.${runtimeClass}`,
    ),
    ...requireIf(
      hostPath !== undefined,
      `volumes.${hostPath?.name}`,
      'volumes.hostpath',
      ': its agent needs --allow-host-path and a directory',
    ),
  ];
}

function requireIf(
  isRequested: boolean,
  field: string,
  capability: string,
  remedy?: string,
): readonly Requirement[] {
  return isRequested ? [{ field, capability, ...definedFields({ remedy }) }] : [];
}
