import type { StatusResponse } from '../gen/runtime/v1/api_pb.js';
import { SAFE_SYSCTLS } from '../containers/config/sysctls.js';
import type { MachineFeatures } from '../system/machine-features.js';

/** What the operator of this machine allows containers. */
export interface Permissions {
  /**
   * Absolute paths: directories of the machine that containers may mount, with all that is below.
   * Default none.
   */
  readonly allowedHostPaths?: readonly string[];
  /** Containers with all privileges of root. Default no. */
  readonly allowPrivileged?: boolean;
  /** Kernel parameters that containers may set beside the safe ones. Default none. */
  readonly allowedSysctls?: readonly string[];
  /** Absolute paths of devices that containers may use. Default none. */
  readonly allowedDevices?: readonly string[];
}

/** What every runtime that speaks the interface gives. */
const ALWAYS = [
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
 * The capabilities of a runtime on a machine, in alphabetical order. @param status - Its verbose
 * answer.
 */
export function toCapabilities(
  status: Pick<StatusResponse, 'info' | 'runtimeHandlers'>,
  {
    apparmor,
    selinux,
    controllers,
    memoryMounts,
    processLimits,
    hasSysctl,
    platform,
  }: MachineFeatures,
  {
    allowedHostPaths = [],
    allowPrivileged = false,
    allowedSysctls = [],
    allowedDevices = [],
  }: Permissions,
): readonly string[] {
  const config = toConfig(status.info);
  const limits = config.disableCgroup ? [] : [...controllers].map((name) => `limits.${name}`);
  return [
    ...ALWAYS,
    ...limits,
    ...(processLimits && config.isContainerd ? ['container.ulimits'] : []),
    ...(memoryMounts ? ['container.shm', 'volumes.memory'] : []),
    ...(allowedHostPaths.length > 0 ? ['volumes.hostpath'] : []),
    ...(allowPrivileged ? ['security.privileged'] : []),
    ...(apparmor && !config.disableApparmor ? ['security.apparmor'] : []),
    ...(selinux && config.enableSelinux ? ['security.selinux'] : []),
    ...[...new Set([...SAFE_SYSCTLS, ...allowedSysctls])]
      .filter(hasSysctl)
      .map((name) => `sysctl.${name}`),
    ...[...new Set(allowedDevices)].map((path) => `device.${path}`),
    `platform.${platform}`,
    ...runtimeClasses(status, config).map((name) => `runtime-class.${name}`),
  ].sort();
}

/** The part of a runtime's own configuration that matters here. */
interface Config {
  readonly disableCgroup: boolean;
  readonly disableApparmor: boolean;
  readonly enableSelinux: boolean;
  /** It has containerd's own part. */
  readonly isContainerd: boolean;
  readonly runtimes: readonly string[];
}

/**
 * Reads the JSON that containerd gives as `config`. A runtime that tells nothing is taken to use
 * what the machine has.
 * @see containerd, pkg/cri/config/config.go, `PluginConfig`
 */
function toConfig(info: Readonly<Record<string, string>>): Config {
  const config = toRecord(parse(info['config']));
  const containerd = toRecord(config['containerd']);
  return {
    disableCgroup: config['disableCgroup'] === true,
    disableApparmor: config['disableApparmor'] === true,
    enableSelinux: config['enableSelinux'] !== false,
    isContainerd: 'containerd' in config,
    runtimes: Object.keys(toRecord(containerd['runtimes'])),
  };
}

function runtimeClasses(
  { runtimeHandlers }: Pick<StatusResponse, 'runtimeHandlers'>,
  { runtimes }: Config,
): readonly string[] {
  return [...new Set([...runtimes, ...runtimeHandlers.map(({ name }) => name)])].filter(
    (name) => name !== '',
  );
}

function parse(text: string | undefined): unknown {
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
