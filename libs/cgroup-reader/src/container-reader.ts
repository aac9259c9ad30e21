import { InvalidInputError, type Clock } from '@cloudless/base';
import {
  groupFiles,
  parseProcStat,
  toSample,
  type CgroupMount,
  type GroupDirectory,
  type GroupPart,
  type GroupTexts,
  type SampleResult,
} from '@cloudless/cgroup-stats';
import { groupsAt, groupsOf, readMounts, type ContainerGroups } from './container-groups.js';
import { MAX_FILE_BYTES, hostFiles, type StatisticsFiles } from './file-system.js';

/** Needs of a {@link ContainerReader}. */
export interface ContainerReaderOptions {
  readonly clock: Clock;
  /** Default: the files of this machine. */
  readonly files?: StatisticsFiles;
}

/**
 * Which container: by a process in it, by the path of its group, or by both. A path tells all of
 * it, also when its first process has moved into a group below; a process tells its network, and
 * one container from the next at the same path.
 */
export interface ContainerTarget {
  /**
   * As this machine numbers it. Names the groups when there is no `cgroupPath`, and the network
   * namespace.
   */
  readonly pid?: number;
  /** Path of the group from the root of every hierarchy, as the runtime was told it. */
  readonly cgroupPath?: string;
  /**
   * Whether its network namespace is its own. Of the machine's own network no container is told;
   * nor without a `pid`.
   */
  readonly ownNetwork: boolean;
}

/** Reads what single containers use. */
export interface ContainerReader {
  /**
   * One sample, of one container: when the process has ended or another one has its pid by the end
   * of it, it counts for nothing.
   * @returns Undefined when the container is gone. Parts that the machine does not count for it
   *   alone are absent.
   * @throws InvalidInputError for a target that names nothing; MalformedCgroupFileError when what
   *   names the groups (`mountinfo`, `cgroup`, `stat`) does not read as documented; errors of the
   *   file system as they are. What is wrong with the files of one part is a problem of the result.
   */
  read(target: ContainerTarget): Promise<SampleResult | undefined>;
}

export function createContainerReader({
  clock,
  files = hostFiles,
}: ContainerReaderOptions): ContainerReader {
  // Hierarchies are mounted when the machine starts; `mountinfo` of a machine with many containers
  // is long.
  let knownMounts: readonly CgroupMount[] | undefined;

  const locate = async ({
    pid,
    cgroupPath,
  }: ContainerTarget): Promise<ContainerGroups | undefined> => {
    const find = (mounts: readonly CgroupMount[]) =>
      cgroupPath === undefined ? groupsOf(files, mounts, pid ?? 0) : groupsAt(mounts, cgroupPath);
    const found = knownMounts && (await find(knownMounts));
    if (found !== undefined && Object.keys(found).length > 0) return found;
    knownMounts = await readMounts(files);
    return find(knownMounts);
  };

  const startOf = async (pid: number | undefined): Promise<bigint | undefined> => {
    const text =
      pid === undefined ? undefined : await files.readText(`/proc/${pid}/stat`, MAX_FILE_BYTES);
    return text === undefined ? undefined : parseProcStat(text).startTicks;
  };

  const textsOf = async (
    part: GroupPart,
    { version, directory }: GroupDirectory,
  ): Promise<GroupTexts> => {
    const names = groupFiles[part][version];
    const texts = await Promise.all(
      names.map((name) => files.readText(`${directory}/${name}`, MAX_FILE_BYTES)),
    );
    return {
      version,
      texts: Object.fromEntries(names.flatMap((name, index) => pair(name, texts[index]))),
    };
  };

  const readParts = async (groups: ContainerGroups, parts: readonly GroupPart[]) => {
    const read = async (part: GroupPart) =>
      pair(part, groups[part] && (await textsOf(part, groups[part])));
    return Object.fromEntries((await Promise.all(parts.map(read))).flat());
  };

  return {
    async read(target) {
      const { pid, ownNetwork } = check(target);
      const started = await startOf(pid);
      const groups = pid !== undefined && started === undefined ? undefined : await locate(target);
      if (groups === undefined) return undefined;
      // The counter that rates are most exact about comes first, in the middle of the moment that
      // stands for all.
      const beforeMs = clock.now();
      const time = await readParts(groups, TIME_PARTS);
      const atMs = (beforeMs + clock.now()) / 2;
      const texts = { ...time, ...(await readParts(groups, OTHER_PARTS)) };
      const netDev =
        ownNetwork && pid !== undefined
          ? await files.readText(`/proc/${pid}/net/dev`, MAX_FILE_BYTES)
          : undefined;
      if ((await startOf(pid)) !== started || (pid === undefined && isEmpty(texts)))
        return undefined;
      const result = { groups: texts, ...(netDev === undefined ? {} : { netDev }) };
      return toSample(sourceOf(groups, pid, started), atMs, result);
    },
  };
}

const TIME_PARTS: readonly GroupPart[] = ['cpuacct', 'cpu', 'unified'];
const OTHER_PARTS: readonly GroupPart[] = ['memory', 'io', 'pids'];

function check(target: ContainerTarget): ContainerTarget {
  const { pid, cgroupPath } = target;
  if (pid === undefined && cgroupPath === undefined) {
    throw new InvalidInputError([
      { field: '', message: 'a container is named by a pid, the path of its group, or both' },
    ]);
  }
  if (pid !== undefined && !(Number.isSafeInteger(pid) && pid > 0)) {
    throw new InvalidInputError([
      { field: 'pid', message: `${pid} is no process: a whole number above 0` },
    ]);
  }
  return target;
}

const isEmpty = (groups: Readonly<Record<string, GroupTexts>>): boolean =>
  Object.values(groups).every(({ texts }) => Object.keys(texts).length === 0);

/**
 * A pid may come again, and a group be made anew at the same path; a process that started at
 * another time is another one.
 */
function sourceOf(
  groups: ContainerGroups,
  pid: number | undefined,
  started: bigint | undefined,
): string {
  const directories = new Set(Object.values(groups).map(({ directory }) => directory));
  return [...(pid === undefined ? [] : [`${pid}@${started}`]), ...directories].join(' ');
}

const pair = <Value>(
  key: string,
  value: Value | undefined,
): readonly (readonly [string, Value])[] => (value === undefined ? [] : [[key, value]]);
