import type { MessageInitShape } from '@bufbuild/protobuf';
import { definedFields, CloudlessError } from '@cloudless/base';
import type { ContainerRequest, SecurityProfile, SecurityRequest } from '@cloudless/runtime';
import {
  SecurityProfile_ProfileType,
  type CapabilitySchema,
  type Image,
  type LinuxContainerSecurityContextSchema,
  type LinuxSandboxSecurityContextSchema,
  type SecurityProfileSchema,
} from '../../gen/runtime/v1/api_pb.js';
import { toNamespaces } from './network.js';

/**
 * Paths below /proc and /sys that a container must not read or write; the same as in Docker and
 * Kubernetes.
 */
const MASKED_PATHS = [
  '/proc/asound',
  '/proc/acpi',
  '/proc/kcore',
  '/proc/keys',
  '/proc/latency_stats',
  '/proc/timer_list',
  '/proc/timer_stats',
  '/proc/sched_debug',
  '/proc/scsi',
  '/sys/firmware',
  '/sys/devices/virtual/powercap',
];
const READONLY_PATHS = ['/proc/bus', '/proc/fs', '/proc/irq', '/proc/sys', '/proc/sysrq-trigger'];
/**
 * Capabilities that container runtimes grant by default and that servers do not need: to write
 * audit records, create device files and send raw packets. The same as in Podman.
 */
const DROPPED_BY_DEFAULT = ['AUDIT_WRITE', 'MKNOD', 'NET_RAW'];
/** Stands for all capabilities in either list. */
const ALL = 'ALL';
/** Largest user or group id. The kernel uses the next number, 2^32 - 1, for `no user`. */
const MAX_ID = 4_294_967_294;

const PROFILE_TYPES = {
  runtimeDefault: SecurityProfile_ProfileType.RuntimeDefault,
  unconfined: SecurityProfile_ProfileType.Unconfined,
  localhost: SecurityProfile_ProfileType.Localhost,
} as const;

/**
 * Validates the security settings.
 * @throws kind `invalid`, naming the field, for settings that contradict each other or would have
 *   no effect.
 */
export function checkSecurity({ security = {} }: ContainerRequest): void {
  const {
    runAsUser,
    userName,
    runAsGroup,
    runAsNonRoot,
    supplementalGroups = [],
    fsGroup,
    seccomp,
  } = security;
  for (const [field, ids] of Object.entries({
    ...{ runAsUser: [runAsUser], runAsGroup: [runAsGroup] },
    ...{ supplementalGroups, fsGroup: [fsGroup] },
  })) {
    const isInvalid = ids.some(
      (id) => id !== undefined && !(Number.isInteger(id) && id >= 0 && id <= MAX_ID),
    );
    if (isInvalid) throw createSecurityError(field, `must be 0 to ${MAX_ID}`);
  }
  if (userName !== undefined && runAsUser !== undefined)
    throw createSecurityError('userName', 'runAsUser is set, too: set only one of them');
  if (userName !== undefined && runAsNonRoot === true)
    throw createSecurityError('userName', 'runAsNonRoot cannot check a name: set runAsUser');
  if (runAsGroup !== undefined && runAsUser === undefined && userName === undefined) {
    throw createSecurityError('runAsGroup', 'a group needs a user: set runAsUser');
  }
  if (runAsNonRoot === true && runAsUser === 0)
    throw createSecurityError('runAsUser', '0 is root, which runAsNonRoot refuses');
  if (seccomp?.kind === 'localhost' && !seccomp.reference.startsWith('/')) {
    throw createSecurityError('seccomp', 'must be the absolute path of a profile on this node');
  }
  checkCapabilities(security);
  if (security.privileged === true) checkPrivileged(security);
}

/**
 * Validates capabilities. A capability in both lists is refused, because container runtimes differ
 * in which list they apply last.
 */
function checkCapabilities({
  capabilitiesAdd: add = [],
  capabilitiesDrop: drop = [],
}: SecurityRequest): void {
  for (const [field, names] of Object.entries({ capabilitiesAdd: add, capabilitiesDrop: drop })) {
    const invalid = names.find((name) => !/^(?!CAP_)[A-Z][A-Z_]*$/.test(name));
    if (invalid !== undefined)
      throw createSecurityError(
        field,
        `${JSON.stringify(invalid)} is not a capability: use names such as NET_ADMIN, without CAP_`,
      );
  }
  const inBoth = add.find((name) => drop.includes(name));
  if (inBoth !== undefined)
    throw createSecurityError('capabilitiesAdd', `${inBoth} is both added and dropped`);
  if (add.includes(ALL) && drop.length > 0)
    throw createSecurityError(
      'capabilitiesAdd',
      'ALL is added after the dropped capabilities, so none would be dropped',
    );
}

/** Refuses settings that container runtimes ignore in a privileged container. */
function checkPrivileged({
  capabilitiesDrop = [],
  seccomp,
  apparmor,
  selinux,
}: SecurityRequest): void {
  /** Each field without effect, and true when the request sets it. */
  const ignored: readonly (readonly [string, boolean])[] = [
    ['capabilitiesDrop', capabilitiesDrop.length > 0],
    ['seccomp', seccomp !== undefined && seccomp.kind !== 'unconfined'],
    ['apparmor', apparmor?.kind === 'runtimeDefault'],
    ['selinux', selinux !== undefined],
  ];
  for (const [field, isSet] of ignored)
    if (isSet) throw createSecurityError(field, 'has no effect in a privileged container');
}

/**
 * Returns true when {@link checkImageUser} must check the image: the request refuses root and sets
 * no user id.
 */
export function needsImageUser({ security = {} }: ContainerRequest): boolean {
  return security.runAsNonRoot === true && security.runAsUser === undefined;
}

/**
 * Refuses an image whose user is or may be root, for a request with `runAsNonRoot`. The rules are
 * those of the kubelet (`verifyRunAsNonRoot`).
 * @param image - Name of the image, for the message.
 * @throws kind `invalid` when the user of the image is root, is not set, or is a name: only the
 *   files of the image define the number of a name.
 */
export function checkImageUser(
  image: string,
  { uid, username = '' }: Partial<Pick<Image, 'uid' | 'username'>>,
): void {
  if (uid !== undefined && uid.value !== 0n) return;
  const isNamed = uid === undefined && username !== '';
  const cause = isNamed
    ? `image ${image} runs as ${JSON.stringify(username)}, and the name does not show whether that user is root`
    : `image ${image} runs as root`;
  throw createSecurityError('runAsNonRoot', `${cause}: set runAsUser to a number above 0`);
}

/**
 * Builds the security context of the sandbox. A privileged container needs a privileged sandbox.
 */
export function toSandboxSecurity(
  request: ContainerRequest,
): MessageInitShape<typeof LinuxSandboxSecurityContextSchema> {
  const { privileged = false, selinux } = request.security ?? {};
  return {
    namespaceOptions: toNamespaces(request),
    privileged,
    seccomp: { profileType: SecurityProfile_ProfileType.RuntimeDefault },
    ...definedFields({ selinuxOptions: selinux }),
  };
}

/**
 * Builds the security context of the container. Defaults are as restrictive as servers usually
 * allow.
 */
export function toContainerSecurity(
  request: ContainerRequest,
): MessageInitShape<typeof LinuxContainerSecurityContextSchema> {
  const { security = {} } = request;
  const { privileged = false, readOnlyRootFilesystem = false, selinux, apparmor } = security;
  return {
    namespaceOptions: toNamespaces(request),
    privileged,
    readonlyRootfs: readOnlyRootFilesystem,
    noNewPrivs: security.noNewPrivileges ?? !privileged,
    ...toIdentity(security),
    ...definedFields({ selinuxOptions: selinux }),
    ...(apparmor === undefined
      ? {}
      : { apparmor: toProfile(apparmor), apparmorProfile: toOldProfile(apparmor) }),
    ...(privileged
      ? { seccomp: toProfile({ kind: 'unconfined' }) }
      : {
          seccomp: toProfile(security.seccomp ?? { kind: 'runtimeDefault' }),
          capabilities: toCapability(security),
          maskedPaths: MASKED_PATHS,
          readonlyPaths: READONLY_PATHS,
        }),
  };
}

/** Converts user and groups. Absent fields keep the values of the image. */
function toIdentity({
  runAsUser,
  userName = '',
  runAsGroup,
  supplementalGroups = [],
  fsGroup,
}: SecurityRequest): Pick<
  MessageInitShape<typeof LinuxContainerSecurityContextSchema>,
  'runAsUser' | 'runAsGroup' | 'runAsUsername' | 'supplementalGroups'
> {
  const groups = new Set([...supplementalGroups, ...(fsGroup === undefined ? [] : [fsGroup])]);
  return {
    ...(runAsUser === undefined ? {} : { runAsUser: { value: BigInt(runAsUser) } }),
    ...(runAsGroup === undefined ? {} : { runAsGroup: { value: BigInt(runAsGroup) } }),
    runAsUsername: userName,
    supplementalGroups: [...groups].map(BigInt),
  };
}

/**
 * Converts capabilities: the defaults of the runtime, without {@link DROPPED_BY_DEFAULT} and the
 * dropped capabilities of the request, then with its added capabilities. {@link checkCapabilities}
 * has refused a capability in both lists.
 */
function toCapability({
  capabilitiesAdd: add = [],
  capabilitiesDrop: drop = [],
}: SecurityRequest): MessageInitShape<typeof CapabilitySchema> {
  const addCapabilities = [...add];
  if (add.includes(ALL)) return { addCapabilities };
  const dropped = [...new Set([...DROPPED_BY_DEFAULT, ...drop])].filter(
    (name) => !add.includes(name),
  );
  return { addCapabilities, dropCapabilities: dropped };
}

function toProfile(profile: SecurityProfile): MessageInitShape<typeof SecurityProfileSchema> {
  const localhostRef = profile.kind === 'localhost' ? profile.reference : '';
  return { profileType: PROFILE_TYPES[profile.kind], localhostRef };
}

/** Converts a profile to the text form, which older container runtimes read. */
function toOldProfile(profile: SecurityProfile): string {
  if (profile.kind === 'localhost') return `localhost/${profile.reference}`;
  return profile.kind === 'unconfined' ? 'unconfined' : 'runtime/default';
}

function createSecurityError(field: string, message: string): CloudlessError {
  return new CloudlessError('invalid', `security.${field}: ${message}`);
}
