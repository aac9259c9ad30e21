import { parseMountLine } from '@cloudless/base';
import { iterateLines } from '../parsers/lines.js';
import { MalformedCgroupFileError } from '../parsers/malformed.js';

/** One line of `/proc/<pid>/cgroup`: the position of a process in one hierarchy. */
export interface CgroupMembership {
  /** 0 for the v2 hierarchy. */
  readonly hierarchy: number;
  /**
   * Controllers of a v1 hierarchy; empty for v2; `name=systemd` or similar for a hierarchy without
   * controllers.
   */
  readonly controllers: readonly string[];
  /**
   * Path below the root of the hierarchy, as seen from the cgroup namespace of the reading process;
   * begins with `/`.
   */
  readonly path: string;
}

/**
 * Parses `/proc/<pid>/cgroup`: `4:memory:/path` (v1), `0::/path` (v2).
 * @throws {@link MalformedCgroupFileError}
 * @see cgroups(7)
 */
export function parseProcCgroup(text: string): readonly CgroupMembership[] {
  const memberships: CgroupMembership[] = [];
  for (const { line, text: content } of iterateLines(text)) {
    const [, hierarchy, controllers, path] = /^(\d{1,9}):([^:]*):(\/.*)$/.exec(content) ?? [];
    if (hierarchy === undefined || controllers === undefined || path === undefined) {
      throw new MalformedCgroupFileError(
        '/proc/<pid>/cgroup',
        line,
        'not of the form number:controllers:/path',
      );
    }
    if (memberships.length === MAX_ENTRIES) throw createTooManyError('/proc/<pid>/cgroup', line);
    memberships.push({
      hierarchy: Number(hierarchy),
      controllers: controllers === '' ? [] : controllers.split(','),
      path,
    });
  }
  return memberships;
}

/**
 * Largest number of entries: far above the number of hierarchies and mounts of a real machine. The
 * limit bounds the memory that a malformed text can take.
 */
const MAX_ENTRIES = 1_024;

const createTooManyError = (file: string, line: number): MalformedCgroupFileError =>
  new MalformedCgroupFileError(file, line, `more than ${MAX_ENTRIES} cgroup hierarchies`);

/** A mounted cgroup hierarchy. */
export interface CgroupMount {
  readonly version: 1 | 2;
  /** Absolute path. */
  readonly mountPoint: string;
  /** Directory within the hierarchy that is mounted; `/` for the whole hierarchy. */
  readonly root: string;
  /** Controllers of a v1 hierarchy, including an option such as `name=systemd`; empty for v2. */
  readonly controllers: readonly string[];
}

/**
 * Finds the cgroup hierarchies in `/proc/<pid>/mountinfo` and skips other mounts.
 * @throws {@link MalformedCgroupFileError} when a line does not have the documented fields.
 * @see proc_pid_mountinfo(5)
 */
export function parseCgroupMounts(text: string): readonly CgroupMount[] {
  const mounts: CgroupMount[] = [];
  for (const { line, text: content } of iterateLines(text)) {
    const mount = parseMountLine(content);
    if (mount === undefined)
      throw new MalformedCgroupFileError('/proc/<pid>/mountinfo', line, 'fields are missing');
    const { type, mountPoint, root, superOptions } = mount;
    if (type !== 'cgroup' && type !== 'cgroup2') continue;
    if (mounts.length === MAX_ENTRIES) throw createTooManyError('/proc/<pid>/mountinfo', line);
    const controllers = type === 'cgroup2' ? [] : superOptions.split(',').filter(isController);
    mounts.push({
      version: type === 'cgroup2' ? 2 : 1,
      mountPoint,
      root,
      controllers,
    });
  }
  return mounts;
}

/**
 * Returns true for a controller or `name=` among the super block options of v1. These options also
 * contain mount flags and `release_agent=`.
 */
const isController = (option: string): boolean =>
  !MOUNT_FLAGS.has(option) && (!option.includes('=') || option.startsWith('name='));

const MOUNT_FLAGS: ReadonlySet<string> = new Set([
  '',
  'rw',
  'ro',
  'noprefix',
  'clone_children',
  'xattr',
  'cpuset_v2_mode',
]);

/**
 * Arrangement of cgroups on a machine. In a hybrid layout v2 is mounted beside v1, mostly without
 * controllers.
 */
export type CgroupLayout = 'none' | 'v1' | 'v2' | 'hybrid';

/** Returns the layout of a machine with these mounts. */
export function detectCgroupLayout(mounts: readonly CgroupMount[]): CgroupLayout {
  const hasV1 = mounts.some(
    (mount) =>
      mount.version === 1 &&
      mount.controllers.some((controller) => !controller.startsWith('name=')),
  );
  const hasV2 = mounts.some((mount) => mount.version === 2);
  if (hasV1) return hasV2 ? 'hybrid' : 'v1';
  return hasV2 ? 'v2' : 'none';
}

/** Position in the file system of the group of a process, for one controller. */
export interface CgroupLocation {
  readonly version: 1 | 2;
  readonly mountPoint: string;
  /**
   * Directories from the group of the process up to the mount point. The limits of each apply.
   */
  readonly directories: readonly string[];
}

/**
 * Locates the group of a process for one controller: in the v1 hierarchy that has the controller,
 * otherwise in v2. When the path of the group is outside of the mounted part, as in a container
 * without a cgroup namespace, the mount point itself is the group.
 * @param memberships - Memberships of the process.
 * @param controller - v1 name of the controller, such as `cpu`, `cpuacct` or `memory`.
 * @returns Undefined when no such hierarchy is mounted.
 */
export function locateCgroup(
  mounts: readonly CgroupMount[],
  memberships: readonly CgroupMembership[],
  controller: string,
): CgroupLocation | undefined {
  const mount =
    mounts.find(({ version, controllers }) => version === 1 && controllers.includes(controller)) ??
    mounts.find(({ version }) => version === 2);
  if (mount === undefined) return undefined;
  const member = memberships.find(({ hierarchy, controllers }) =>
    mount.version === 2 ? hierarchy === 0 : controllers.includes(controller),
  );
  const directories = [mount.mountPoint];
  for (const name of segmentsBelow(mount.root, member?.path ?? '/') ?? [])
    directories.unshift(`${directories[0] ?? ''}/${name}`);
  return { version: mount.version, mountPoint: mount.mountPoint, directories };
}

/** Directory of one group. */
export interface GroupDirectory {
  readonly version: 1 | 2;
  readonly directory: string;
}

/**
 * Finds the directory of one group. Unlike {@link locateCgroup}, returns no other directory when
 * the group itself is not mounted.
 * @param controller - v1 name of the controller: the v1 hierarchy that has it, otherwise v2.
 *   Undefined: v2, also beside v1.
 * @param pathIn - Returns the path of the group in the hierarchy of a mount, as seen from the
 *   cgroup namespace of this process; undefined when the group is not in that hierarchy.
 * @returns Undefined when no such hierarchy is mounted, the group is not below the mounted part, or
 *   the group is the root of the hierarchy, which covers the whole machine.
 */
export function findGroupDirectory(
  mounts: readonly CgroupMount[],
  controller: string | undefined,
  pathIn: (mount: CgroupMount) => string | undefined,
): GroupDirectory | undefined {
  const ofV1 =
    controller === undefined
      ? []
      : mounts.filter((mount) => mount.version === 1 && mount.controllers.includes(controller));
  for (const mount of ofV1.length > 0 ? ofV1 : mounts.filter(({ version }) => version === 2)) {
    const path = pathIn(mount);
    const names =
      path === undefined || segmentsOf(path).length === 0
        ? undefined
        : segmentsBelow(mount.root, path);
    if (names !== undefined)
      return {
        version: mount.version,
        directory: [mount.mountPoint.replace(/\/$/, ''), ...names].join('/'),
      };
  }
  return undefined;
}

/**
 * Returns the path of a process's group in the hierarchy of a mount; undefined when the process is
 * not in that hierarchy.
 */
export function pathInHierarchy(
  memberships: readonly CgroupMembership[],
  mount: CgroupMount,
): string | undefined {
  return memberships.find(({ hierarchy, controllers }) =>
    mount.version === 2
      ? hierarchy === 0
      : controllers.some((name) => mount.controllers.includes(name)),
  )?.path;
}

/**
 * Returns the path segments from `root` down to `path`; undefined when `path` is neither `root` nor
 * below.
 */
function segmentsBelow(root: string, path: string): readonly string[] | undefined {
  const rootNames = segmentsOf(root);
  const names = segmentsOf(path);
  const isBelow = rootNames.every((name, index) => names[index] === name) && !names.includes('..');
  return isBelow ? names.slice(rootNames.length) : undefined;
}

const segmentsOf = (path: string): string[] => path.split('/').filter((name) => name !== '');
