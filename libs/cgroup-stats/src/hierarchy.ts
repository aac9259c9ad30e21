import { linesOf } from './lines.js';
import { MalformedCgroupFileError } from './malformed.js';

/** One line of `/proc/<pid>/cgroup`: where a process is in one hierarchy. */
export interface CgroupMembership {
  /** 0 for the hierarchy of v2. */
  readonly hierarchy: number;
  /**
   * Controllers of a v1 hierarchy; empty for v2; `name=systemd` and the like for those without
   * controllers.
   */
  readonly controllers: readonly string[];
  /** Path from the root of the hierarchy, as this process sees it; begins with `/`. */
  readonly path: string;
}

/**
 * Parses `/proc/<pid>/cgroup`: `4:memory:/path` (v1), `0::/path` (v2).
 * @throws {@link MalformedCgroupFileError}
 * @see cgroups(7)
 */
export function parseProcCgroup(text: string): readonly CgroupMembership[] {
  const memberships: CgroupMembership[] = [];
  for (const { line, text: content } of linesOf(text)) {
    const [, hierarchy, controllers, path] = /^(\d{1,9}):([^:]*):(\/.*)$/.exec(content) ?? [];
    if (hierarchy === undefined || controllers === undefined || path === undefined) {
      throw new MalformedCgroupFileError(
        '/proc/<pid>/cgroup',
        line,
        'not of the form number:controllers:/path',
      );
    }
    if (memberships.length === MAX_ENTRIES) throw tooMany('/proc/<pid>/cgroup', line);
    memberships.push({
      hierarchy: Number(hierarchy),
      controllers: controllers === '' ? [] : controllers.split(','),
      path,
    });
  }
  return memberships;
}

/**
 * Far above what a machine has: a line for each hierarchy, and a mount or a few. Keeps hostile text
 * from taking much room.
 */
const MAX_ENTRIES = 1_024;

const tooMany = (file: string, line: number): MalformedCgroupFileError =>
  new MalformedCgroupFileError(file, line, `more than ${MAX_ENTRIES} cgroup hierarchies`);

/** A mounted cgroup hierarchy. */
export interface CgroupMount {
  readonly version: 1 | 2;
  readonly mountPoint: string;
  /** Which directory of the hierarchy is mounted there; `/` for the whole. */
  readonly root: string;
  /** Controllers of a v1 hierarchy and its `name=`; empty for v2. */
  readonly controllers: readonly string[];
}

/**
 * Finds the cgroup hierarchies in `/proc/<pid>/mountinfo`; other mounts are skipped.
 * @throws {@link MalformedCgroupFileError} when a line does not have the documented fields.
 * @see proc_pid_mountinfo(5)
 */
export function parseCgroupMounts(text: string): readonly CgroupMount[] {
  const mounts: CgroupMount[] = [];
  for (const { line, text: content } of linesOf(text)) {
    const [left = '', right] = content.split(' - ', 2);
    const [, , , root, mountPoint] = left.split(' ', 5);
    const [type, , superOptions = ''] = right?.split(' ', 3) ?? [];
    if (root === undefined || mountPoint === undefined || type === undefined) {
      throw new MalformedCgroupFileError('/proc/<pid>/mountinfo', line, 'fields are missing');
    }
    if (type !== 'cgroup' && type !== 'cgroup2') continue;
    if (mounts.length === MAX_ENTRIES) throw tooMany('/proc/<pid>/mountinfo', line);
    const controllers = type === 'cgroup2' ? [] : superOptions.split(',').filter(isController);
    mounts.push({
      version: type === 'cgroup2' ? 2 : 1,
      mountPoint: unescapePath(mountPoint),
      root: unescapePath(root),
      controllers,
    });
  }
  return mounts;
}

/**
 * Among the super block options of v1, flags and `release_agent=` are no controllers; `name=`
 * stands for a hierarchy without any.
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

/** Space, tab, newline and backslash are written as three octal digits. */
const unescapePath = (path: string): string =>
  path.replaceAll(/\\([0-7]{3})/g, (_, octal: string) =>
    String.fromCharCode(Number.parseInt(octal, 8)),
  );

/**
 * How a machine arranges its cgroups; in a hybrid one v2 is there beside v1 and mostly without
 * controllers.
 */
export type CgroupLayout = 'none' | 'v1' | 'v2' | 'hybrid';

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

/** Where a process's group of one controller is in the file system. */
export interface CgroupLocation {
  readonly version: 1 | 2;
  readonly mountPoint: string;
  /**
   * Directories from the process's own group up to the mount point; limits of all of them apply.
   */
  readonly directories: readonly string[];
}

/**
 * Locates the group whose files speak about `controller` (`cpu`, `cpuacct`, `memory`): the v1
 * hierarchy that has it, else v2. A path outside of what is mounted, as in a container without a
 * cgroup namespace, is taken as the mount point itself.
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
  for (const name of namesBelow(mount.root, member?.path ?? '/') ?? [])
    directories.unshift(`${directories[0] ?? ''}/${name}`);
  return { version: mount.version, mountPoint: mount.mountPoint, directories };
}

/** The directory of one group. */
export interface GroupDirectory {
  readonly version: 1 | 2;
  readonly directory: string;
}

/**
 * Finds the directory of a group, and no other: where {@link locateCgroup} takes the nearest that
 * there is, this one says nothing.
 * @param controller - v1's name of it: the v1 hierarchy that has it, else v2. Undefined: v2, also
 *   beside v1.
 * @param pathIn - Path of the group in the hierarchy of a mount, as this process sees it.
 * @returns Undefined when no such hierarchy is mounted, the group is not below what is mounted, or
 *   it is the root of the hierarchy: that is the group of everything.
 */
export function groupDirectory(
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
      path === undefined || namesOf(path).length === 0 ? undefined : namesBelow(mount.root, path);
    if (names !== undefined)
      return {
        version: mount.version,
        directory: [mount.mountPoint.replace(/\/$/, ''), ...names].join('/'),
      };
  }
  return undefined;
}

/**
 * Path of a process's group in the hierarchy of a mount; undefined when the process is in none of
 * it.
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

/** The names that lead from `root` down to `path`; undefined when `path` is not below it. */
function namesBelow(root: string, path: string): readonly string[] | undefined {
  const rootNames = namesOf(root);
  const names = namesOf(path);
  const isBelow = rootNames.every((name, index) => names[index] === name) && !names.includes('..');
  return isBelow ? names.slice(rootNames.length) : undefined;
}

const namesOf = (path: string): string[] => path.split('/').filter((name) => name !== '');
