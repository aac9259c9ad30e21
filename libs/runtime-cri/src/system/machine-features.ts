import { existsSync, readFileSync, realpathSync } from 'node:fs';
import path from 'node:path';

/** Features of this machine that matter for containers. */
export interface MachineFeatures {
  /** True when AppArmor is active. */
  readonly apparmor: boolean;
  /** True when SELinux is active with a loaded policy. */
  readonly selinux: boolean;
  /** Those of the cgroup controllers `cpu`, `memory` and `pids` that exist, of either version. */
  readonly controllers: ReadonlySet<string>;
  /** True when this process can mount a tmpfs. */
  readonly memoryMounts: boolean;
  /**
   * True when this process can set the ulimits of processes of root. To raise a hard limit it also
   * needs CAP_SYS_RESOURCE, which is not checked.
   */
  readonly processLimits: boolean;
  /**
   * True when this process has the privileges and programs to filter the packets of containers.
   * `confirmPacketFilter` then checks that the kernel accepts a filter.
   */
  readonly packetFilter: boolean;
  /** True when this process can send signals to the processes of containers. */
  readonly signals: boolean;
  /** Returns true when the kernel has a parameter of this name, such as `kernel.sem`. */
  readonly hasSysctl: (name: string) => boolean;
  /** Returns a path with all symbolic links resolved; undefined when the path does not exist. */
  readonly resolvePath: (path: string) => string | undefined;
  /** Operating system and processor as images name them: `linux/amd64`. */
  readonly platform: string;
}

/**
 * Names of processors in image platforms, by the name in Node.js, where the two names differ.
 * @see OCI Image Specification, "Image Index", `platform`
 */
const PROCESSORS: Readonly<Record<string, string>> = {
  x64: 'amd64',
  ia32: '386',
  ppc64: 'ppc64le',
};

/**
 * Bits of the capabilities NET_ADMIN and SYS_ADMIN.
 * @see Linux kernel, include/uapi/linux/capability.h
 */
const NET_ADMIN = 1n << 12n;
const SYS_ADMIN = 1n << 21n;

/** Controllers that the limits of a request need. */
const CONTROLLERS = ['cpu', 'memory', 'pids'];

/**
 * Reads the features of this machine.
 * @param root - Directory that is read as `/`, for tests.
 */
export function readMachineFeatures(root = '/'): MachineFeatures {
  const at = (name: string): string => path.join(root, name);
  const hasProgram = (name: string): boolean =>
    ['bin', 'usr/bin', 'sbin', 'usr/sbin'].some((directory) =>
      existsSync(at(`${directory}/${name}`)),
    );
  const status = readText(at('proc/self/status'));
  const privileges = parseEffectiveCapabilities(status);
  const isRoot = /^Uid:\s*0\s/m.test(status);
  const v2 = new Set(readText(at('sys/fs/cgroup/cgroup.controllers')).trim().split(' '));
  return {
    apparmor: readText(at('sys/module/apparmor/parameters/enabled')).trim() === 'Y',
    // Without a loaded policy, the label of every process is `kernel`.
    selinux:
      existsSync(at('sys/fs/selinux/enforce')) &&
      !readText(at('proc/self/attr/current')).startsWith('kernel'),
    controllers: new Set(
      CONTROLLERS.filter((name) => v2.has(name) || existsSync(at(`sys/fs/cgroup/${name}`))),
    ),
    hasSysctl: (name) => existsSync(at(`proc/sys/${name.replaceAll('.', '/')}`)),
    resolvePath: resolveRealPath,
    platform: `linux/${PROCESSORS[process.arch] ?? process.arch}`,
    memoryMounts:
      (privileges & SYS_ADMIN) !== 0n &&
      /\ttmpfs$/m.test(readText(at('proc/filesystems'))) &&
      hasProgram('mount'),
    processLimits: isRoot && hasProgram('prlimit'),
    packetFilter:
      isRoot &&
      [NET_ADMIN, SYS_ADMIN].every((bit) => (privileges & bit) !== 0n) &&
      ['nft', 'nsenter', 'unshare'].every(hasProgram),
    signals: isRoot,
  };
}

/**
 * Returns the effective capabilities as a bit set; 0 when the line is missing.
 * @see proc_pid_status(5), `CapEff`
 */
function parseEffectiveCapabilities(status: string): bigint {
  return BigInt(`0x${/^CapEff:\s*([0-9a-f]+)$/m.exec(status)?.[1] ?? '0'}`);
}

function resolveRealPath(name: string): string | undefined {
  try {
    return realpathSync(name);
  } catch {
    return undefined;
  }
}

/** Reads a file; empty when the file cannot be read. */
function readText(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}
