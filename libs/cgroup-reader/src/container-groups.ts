import { InvalidInputError } from '@cloudless/base';
import {
  findGroupDirectory,
  parseCgroupMounts,
  parseProcCgroup,
  pathInHierarchy,
  type CgroupMount,
  type GroupDirectory,
  type GroupPart,
} from '@cloudless/cgroup-stats';
import { MAX_FILE_BYTES, MAX_MOUNTINFO_BYTES, type StatisticsFiles } from './file-system.js';

/**
 * Directories of the groups of a container. A controller for which the container has no group of
 * its own is absent.
 */
export type ContainerGroups = Readonly<Partial<Record<GroupPart, GroupDirectory>>>;

/** The v1 controller of each part; undefined for the v2 hierarchy. */
const CONTROLLERS: Readonly<Record<GroupPart, string | undefined>> = {
  unified: undefined,
  cpuacct: 'cpuacct',
  cpu: 'cpu',
  memory: 'memory',
  io: 'blkio',
  pids: 'pids',
};
const PARTS = Object.keys(CONTROLLERS) as readonly GroupPart[];

/**
 * Returns the cgroup hierarchies that are mounted in the mount namespace of this process; empty
 * where there is no `/proc`.
 * @throws MalformedCgroupFileError when `mountinfo` is malformed; errors of the file system
 *   unchanged.
 */
export async function readMounts(files: StatisticsFiles): Promise<readonly CgroupMount[]> {
  return parseCgroupMounts(
    (await files.readText('/proc/self/mountinfo', MAX_MOUNTINFO_BYTES)) ?? '',
  );
}

/**
 * Returns the groups at one path: container runtimes create the groups of a container at the same
 * path in every hierarchy.
 * @throws InvalidInputError when the path is not the path of a group below the root.
 */
export function locateGroupsAt(
  mounts: readonly CgroupMount[],
  cgroupPath: string,
): ContainerGroups {
  if (
    !cgroupPath.startsWith('/') ||
    /^\/*$/.test(cgroupPath) ||
    cgroupPath.split('/').includes('..') ||
    cgroupPath.includes('\0')
  ) {
    const message = `${JSON.stringify(cgroupPath)} is not the path of a group; a path begins with "/", goes below the root and has no ".."`;
    throw new InvalidInputError([{ field: 'cgroupPath', message }]);
  }
  return mapParts((part) => findGroupDirectory(mounts, CONTROLLERS[part], () => cgroupPath));
}

/**
 * Returns the groups of a process. Leaves out a group that also contains this process, because the
 * values of a shared group cover more than the container; some runtimes create no groups.
 * @returns Undefined when there is no such process.
 */
export async function locateGroupsOf(
  files: StatisticsFiles,
  mounts: readonly CgroupMount[],
  pid: number,
): Promise<ContainerGroups | undefined> {
  const text = await files.readText(`/proc/${pid}/cgroup`, MAX_FILE_BYTES);
  if (text === undefined) return undefined;
  const memberships = parseProcCgroup(text);
  const ownMemberships = parseProcCgroup(
    (await files.readText('/proc/self/cgroup', MAX_FILE_BYTES)) ?? '',
  );
  return mapParts((part) =>
    findGroupDirectory(mounts, CONTROLLERS[part], (mount) => {
      const path = pathInHierarchy(memberships, mount);
      return path === pathInHierarchy(ownMemberships, mount) ? undefined : path;
    }),
  );
}

/** Finds the group of each part, without parts that have none. */
function mapParts(find: (part: GroupPart) => GroupDirectory | undefined): ContainerGroups {
  const found: Partial<Record<GroupPart, GroupDirectory>> = {};
  for (const part of PARTS) {
    const group = find(part);
    if (group !== undefined) found[part] = group;
  }
  return found;
}
