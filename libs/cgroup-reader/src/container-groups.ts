import { InvalidInputError } from '@cloudless/base';
import {
  groupDirectory,
  parseCgroupMounts,
  parseProcCgroup,
  pathInHierarchy,
  type CgroupMount,
  type GroupDirectory,
  type GroupPart,
} from '@cloudless/cgroup-stats';
import { MAX_FILE_BYTES, MAX_MOUNTINFO_BYTES, type StatisticsFiles } from './file-system.js';

/** Where the groups of a container are; a part without a group of its own is absent. */
export type ContainerGroups = Readonly<Partial<Record<GroupPart, GroupDirectory>>>;

/** v1's name of the controller behind each part; `unified` is v2 by itself. */
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
 * The hierarchies mounted where this process runs. @throws MalformedCgroupFileError, or errors of
 * the file system.
 */
export async function readMounts(files: StatisticsFiles): Promise<readonly CgroupMount[]> {
  return parseCgroupMounts(
    (await files.readText('/proc/self/mountinfo', MAX_MOUNTINFO_BYTES)) ?? '',
  );
}

/** The groups at one path, the same in each hierarchy, as a runtime makes them. */
export function groupsAt(mounts: readonly CgroupMount[], cgroupPath: string): ContainerGroups {
  if (
    !cgroupPath.startsWith('/') ||
    /^\/*$/.test(cgroupPath) ||
    cgroupPath.split('/').includes('..') ||
    cgroupPath.includes('\0')
  ) {
    const message = `${JSON.stringify(cgroupPath)} is no path of a group: it begins with "/", goes below it and has no ".."`;
    throw new InvalidInputError([{ field: 'cgroupPath', message }]);
  }
  return eachPart((part) => groupDirectory(mounts, CONTROLLERS[part], () => cgroupPath));
}

/**
 * The groups a process is in. Where it shares one with this process (a runtime that makes none),
 * the figures would be those of all that run there: such a part is left out.
 * @returns Undefined when there is no such process.
 */
export async function groupsOf(
  files: StatisticsFiles,
  mounts: readonly CgroupMount[],
  pid: number,
): Promise<ContainerGroups | undefined> {
  const text = await files.readText(`/proc/${pid}/cgroup`, MAX_FILE_BYTES);
  if (text === undefined) return undefined;
  const theirs = parseProcCgroup(text);
  const ours = parseProcCgroup((await files.readText('/proc/self/cgroup', MAX_FILE_BYTES)) ?? '');
  return eachPart((part) =>
    groupDirectory(mounts, CONTROLLERS[part], (mount) => {
      const path = pathInHierarchy(theirs, mount);
      return path === pathInHierarchy(ours, mount) ? undefined : path;
    }),
  );
}

function eachPart(find: (part: GroupPart) => GroupDirectory | undefined): ContainerGroups {
  const found: Partial<Record<GroupPart, GroupDirectory>> = {};
  for (const part of PARTS) {
    const group = find(part);
    if (group !== undefined) found[part] = group;
  }
  return found;
}
