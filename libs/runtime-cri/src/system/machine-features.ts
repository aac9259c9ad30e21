import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';

/** Features of this machine that matter for containers. */
export interface MachineFeatures {
  /** Whether AppArmor, or SELinux, is active. */
  readonly apparmor: boolean;
  readonly selinux: boolean;
  /** Controllers of cgroups, of either version: `cpu`, `memory`, `pids`… */
  readonly controllers: ReadonlySet<string>;
  /** Whether this process can mount a tmpfs. */
  readonly memoryMounts: boolean;
  /**
   * Whether this process can set limits of processes of root. Raising them also needs
   * CAP_SYS_RESOURCE.
   */
  readonly processLimits: boolean;
  /** Whether the kernel has a parameter of this name. */
  readonly hasSysctl: (name: string) => boolean;
  /** Operating system and processor as images name them: `linux/amd64`. */
  readonly platform: string;
}

/**
 * Names of processors in images, by their names in Node.js where both differ.
 * @see OCI Image Specification, "Image Index", `platform`
 */
const PROCESSORS: Readonly<Record<string, string>> = {
  x64: 'amd64',
  ia32: '386',
  ppc64: 'ppc64le',
};

/** Bit of the capability SYS_ADMIN. @see include/uapi/linux/capability.h */
const SYS_ADMIN = 1n << 21n;

/** Controllers that limits need. */
const CONTROLLERS = ['cpu', 'memory', 'pids'];

/**
 * Reads the features of this machine.
 * @param root - Directory that stands for `/`.
 */
export function readMachineFeatures(root = '/'): MachineFeatures {
  const at = (name: string): string => path.join(root, name);
  const hasProgram = (name: string): boolean =>
    ['bin', 'usr/bin'].some((directory) => existsSync(at(`${directory}/${name}`)));
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
    platform: `linux/${PROCESSORS[process.arch] ?? process.arch}`,
    memoryMounts:
      (privileges & SYS_ADMIN) !== 0n &&
      /\ttmpfs$/m.test(readText(at('proc/filesystems'))) &&
      hasProgram('mount'),
    processLimits: isRoot && hasProgram('prlimit'),
  };
}

/** @see proc_pid_status(5), `CapEff` */
function parseEffectiveCapabilities(status: string): bigint {
  return BigInt(`0x${/^CapEff:\s*([0-9a-f]+)$/m.exec(status)?.[1] ?? '0'}`);
}

/** Reads a file; empty when it does not exist. */
function readText(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}
