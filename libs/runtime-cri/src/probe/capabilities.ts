import { EGRESS_CAPABILITY, SIGNAL_CAPABILITY } from '@cloudless/runtime';
import type { StatusResponse } from '../gen/runtime/v1/api_pb.js';
import { SAFE_SYSCTLS } from '../containers/config/sysctls.js';
import type { MachineFeatures } from '../system/machine-features.js';
import { normalizePath } from '../volumes/mount-paths.js';

/** Permissions that the operator of this machine gives to containers. */
export interface Permissions {
  /**
   * Absolute paths of directories that containers may mount, with all their content. Default none.
   */
  readonly allowedHostPaths?: readonly string[];
  /** True when containers may be privileged. Default false. */
  readonly allowPrivileged?: boolean;
  /**
   * Kernel parameters that containers may set in addition to {@link SAFE_SYSCTLS}. Default none.
   */
  readonly allowedSysctls?: readonly string[];
  /** Absolute paths of devices that containers may use. Default none. */
  readonly allowedDevices?: readonly string[];
}

/** Capabilities of every node with a container runtime that implements the interface. */
const BASE_CAPABILITIES = [
  'runtime.cri',
  'container.init',
  'exec.tty',
  'ports.host',
  'network.host',
  'volumes.emptydir',
  'volumes.named',
  'security.context',
  'security.groups',
  'security.username',
] as const;

/**
 * Returns the capabilities of a node with this container runtime and machine, in alphabetical
 * order.
 * @param status - Verbose status of the runtime.
 */
export function toCapabilities(
  status: Pick<StatusResponse, 'info' | 'runtimeHandlers'>,
  {
    apparmor,
    selinux,
    controllers,
    memoryMounts,
    processLimits,
    packetFilter,
    signals,
    hasSysctl,
    resolvePath,
    platform,
  }: MachineFeatures,
  {
    allowedHostPaths = [],
    allowPrivileged = false,
    allowedSysctls = [],
    allowedDevices = [],
  }: Permissions,
): readonly string[] {
  const config = parseConfig(status.info);
  const limits = config.disableCgroup ? [] : [...controllers].map((name) => `limits.${name}`);
  return [
    ...BASE_CAPABILITIES,
    ...limits,
    ...(processLimits && config.isContainerd ? ['container.ulimits'] : []),
    ...(packetFilter && config.usesRunc ? [EGRESS_CAPABILITY] : []),
    ...(signals ? [SIGNAL_CAPABILITY] : []),
    ...(memoryMounts ? ['container.shm', 'volumes.memory'] : []),
    ...(allowedHostPaths.length > 0 ? ['volumes.hostpath'] : []),
    ...listDirectories(allowedHostPaths, resolvePath).map((path) => `host-path.${path}`),
    ...(allowPrivileged ? ['security.privileged'] : []),
    ...(apparmor && !config.disableApparmor ? ['security.apparmor'] : []),
    ...(selinux && config.enableSelinux ? ['security.selinux'] : []),
    ...[...new Set([...SAFE_SYSCTLS, ...allowedSysctls])]
      .filter(hasSysctl)
      .map((name) => `sysctl.${name}`),
    ...[...new Set(allowedDevices)].map((path) => `device.${path}`),
    `platform.${platform}`,
    ...listRuntimeClasses(status, config).map((name) => `runtime-class.${name}`),
  ].sort();
}

/**
 * Lists directories, normalized and in alphabetical order. For a directory that is reached through a
 * link, the place that the link leads to is listed too.
 */
function listDirectories(
  paths: readonly string[],
  resolvePath: MachineFeatures['resolvePath'],
): readonly string[] {
  const directories = paths.map(normalizePath);
  return [...new Set(directories.flatMap((path) => [path, resolvePath(path) ?? path]))].sort();
}

/** The relevant part of the configuration of a runtime. */
interface Config {
  readonly disableCgroup: boolean;
  readonly disableApparmor: boolean;
  readonly enableSelinux: boolean;
  /** True when the configuration has the section `containerd`. */
  readonly isContainerd: boolean;
  /**
   * True when containerd runs containers in the kernel of the machine unless a runtime class is
   * requested. Others, such as gVisor, send packets that pass no packet filter for output.
   */
  readonly usesRunc: boolean;
  /** Names of the runtime classes in the configuration. */
  readonly runtimes: readonly string[];
}

/**
 * Parses the JSON that containerd reports as `config`. A runtime that reports no configuration is
 * assumed to use all features of the machine.
 * @see containerd, pkg/cri/config/config.go, `PluginConfig`
 */
function parseConfig(info: Readonly<Record<string, string>>): Config {
  const config = toRecord(parseJson(info['config']));
  const containerd = toRecord(config['containerd']);
  const runtimes = toRecord(containerd['runtimes']);
  const { runtimeType } = toRecord(runtimes[String(containerd['defaultRuntimeName'])]);
  return {
    disableCgroup: config['disableCgroup'] === true,
    disableApparmor: config['disableApparmor'] === true,
    enableSelinux: config['enableSelinux'] !== false,
    isContainerd: 'containerd' in config,
    usesRunc: typeof runtimeType === 'string' && runtimeType.startsWith('io.containerd.runc.'),
    runtimes: Object.keys(runtimes),
  };
}

/** Lists the runtime classes, which older runtimes report only in their configuration. */
function listRuntimeClasses(
  { runtimeHandlers }: Pick<StatusResponse, 'runtimeHandlers'>,
  { runtimes }: Config,
): readonly string[] {
  return [...new Set([...runtimes, ...runtimeHandlers.map(({ name }) => name)])].filter(
    (name) => name !== '',
  );
}

function parseJson(text: string | undefined): unknown {
  try {
    return JSON.parse(text ?? '{}');
  } catch {
    return undefined;
  }
}

function toRecord(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null
    ? (value as Readonly<Record<string, unknown>>)
    : {};
}
