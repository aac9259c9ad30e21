import { CloudlessError } from '@cloudless/base';
import type { ContainerRequest } from '@cloudless/runtime';

/** A field of a request and the capability that it needs. */
interface Need {
  readonly field: string;
  readonly capability: string;
  /** Text that tells the operator of the node how to get the capability. */
  readonly remedy?: string;
}

/**
 * Refuses a request that needs a missing capability, because a runtime would ignore the field.
 * @param capabilities - Capabilities of this node.
 * @throws kind `unimplemented`, naming the field and the missing capability.
 */
export function checkCapabilitiesOf(
  request: ContainerRequest,
  capabilities: readonly string[],
): void {
  const missing = needsOf(request).find(({ capability }) => !capabilities.includes(capability));
  if (missing === undefined) return;
  const { field, capability, remedy = '' } = missing;
  throw new CloudlessError(
    'unimplemented',
    `${field}: this node lacks the capability ${capability}${remedy}`,
  );
}

function needsOf({
  limits,
  security = {},
  volumes = [],
  init,
  shmSizeBytes,
  sysctls = {},
  devices = [],
  ulimits = [],
  imagePlatform,
}: ContainerRequest): readonly Need[] {
  const { apparmor, selinux, privileged, runtimeClass, userName, supplementalGroups, fsGroup } =
    security;
  const inMemory = volumes.find(
    ({ source }) => source.kind === 'emptyDir' && source.memory !== undefined,
  );
  const hostPath = volumes.find(({ source }) => source.kind === 'hostPath');
  return [
    ...need(limits.cpuMillis !== undefined, 'limits.cpuMillis', 'limits.cpu'),
    ...need(limits.memoryBytes !== undefined, 'limits.memoryBytes', 'limits.memory'),
    ...need(limits.pids !== undefined, 'limits.pids', 'limits.pids'),
    ...need(init === true, 'init', 'container.init'),
    ...need(shmSizeBytes !== undefined, 'shmSizeBytes', 'container.shm'),
    ...need(inMemory !== undefined, `volumes.${inMemory?.name}`, 'volumes.memory'),
    ...Object.keys(sysctls).map((name) => ({
      ...{ field: `sysctls.${name}`, capability: `sysctl.${name}` },
      remedy: `: its agent needs --allow-sysctl ${name}`,
    })),
    ...devices.map(({ hostPath }) => ({
      ...{ field: `devices.${hostPath}`, capability: `device.${hostPath}` },
      remedy: `: its agent needs --allow-device ${hostPath}`,
    })),
    ...need(ulimits.length > 0, 'ulimits', 'container.ulimits'),
    ...need(imagePlatform !== undefined, 'imagePlatform', `platform.${imagePlatform}`),
    ...need(userName !== undefined, 'security.userName', 'security.username'),
    ...need(supplementalGroups !== undefined, 'security.supplementalGroups', 'security.groups'),
    ...need(fsGroup !== undefined, 'security.fsGroup', 'security.groups'),
    ...need(apparmor !== undefined, 'security.apparmor', 'security.apparmor'),
    ...need(selinux !== undefined, 'security.selinux', 'security.selinux'),
    ...need(
      privileged === true,
      'security.privileged',
      'security.privileged',
      ': its agent needs --allow-privileged',
    ),
    ...need(runtimeClass !== undefined, 'security.runtimeClass', `runtime-class.${runtimeClass}`),
    ...need(
      hostPath !== undefined,
      `volumes.${hostPath?.name}`,
      'volumes.hostpath',
      ': its agent needs --allow-host-path and a directory',
    ),
  ];
}

function need(
  isAsked: boolean,
  field: string,
  capability: string,
  remedy?: string,
): readonly Need[] {
  return isAsked ? [{ field, capability, ...(remedy === undefined ? {} : { remedy }) }] : [];
}
