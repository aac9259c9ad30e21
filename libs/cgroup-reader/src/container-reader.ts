import { definedFields, InvalidInputError, type Clock } from '@cloudless/base';
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
import {
  locateGroupsAt,
  locateGroupsOf,
  readMounts,
  type ContainerGroups,
} from './container-groups.js';
import { MAX_FILE_BYTES, hostFiles, type StatisticsFiles } from './file-system.js';

/** Arguments of {@link createContainerReader}. */
export interface ContainerReaderOptions {
  readonly clock: Clock;
  /** Default: the files of this machine. */
  readonly files?: StatisticsFiles;
}

/**
 * Identifies a container by one of its processes, by the path of its group, or by both. The path
 * covers the whole container even when its first process has moved into a group below. The process
 * gives the network namespace, and distinguishes successive containers at the same path.
 */
export interface ContainerTarget {
  /**
   * Process id on this machine, above 0. Locates the network namespace, and without a `cgroupPath`
   * also the groups.
   */
  readonly pid?: number;
  /**
   * Path of the group below the root of every hierarchy, as the container runtime reports it;
   * begins with `/`.
   */
  readonly cgroupPath?: string;
  /**
   * True when the container has its own network namespace. Otherwise, and without a `pid`, network
   * use is absent.
   */
  readonly ownNetwork: boolean;
}

/** Reads the resource use of containers. */
export interface ContainerReader {
  /**
   * Takes one sample of one container.
   * @returns Undefined when the container does not exist, or when its process has ended or its pid
   *   was reused by the end of the read. Parts that the kernel does not count separately for the
   *   container are absent. Malformed files of one part are `problems` of the result.
   * @throws InvalidInputError for a target without pid and path, or with an invalid one;
   *   MalformedCgroupFileError when a file that locates the groups (`mountinfo`, `cgroup`, `stat`)
   *   is malformed; errors of the file system unchanged.
   */
  read(target: ContainerTarget): Promise<SampleResult | undefined>;
}

/** Creates a reader. It holds no resources and need not be closed. */
export function createContainerReader({
  clock,
  files = hostFiles,
}: ContainerReaderOptions): ContainerReader {
  // Cache the mounts: hierarchies are mounted when the machine starts, and `mountinfo` is long on a
  // machine with many containers. They are read again when no group is found.
  let knownMounts: readonly CgroupMount[] | undefined;

  const locate = async ({
    pid,
    cgroupPath,
  }: ContainerTarget): Promise<ContainerGroups | undefined> => {
    const find = (mounts: readonly CgroupMount[]) =>
      cgroupPath === undefined
        ? locateGroupsOf(files, mounts, pid ?? 0)
        : locateGroupsAt(mounts, cgroupPath);
    const found = knownMounts && (await find(knownMounts));
    if (found !== undefined && Object.keys(found).length > 0) return found;
    knownMounts = await readMounts(files);
    return find(knownMounts);
  };

  /** Reads the start time of a process; undefined when the process has ended. */
  const readStartTicks = async (pid: number | undefined): Promise<bigint | undefined> => {
    const text =
      pid === undefined ? undefined : await files.readText(`/proc/${pid}/stat`, MAX_FILE_BYTES);
    return text === undefined ? undefined : parseProcStat(text).startTicks;
  };

  const readTexts = async (
    part: GroupPart,
    { version, directory }: GroupDirectory,
  ): Promise<GroupTexts> => {
    const names = groupFiles[part][version];
    const texts = await Promise.all(
      names.map((name) => files.readText(`${directory}/${name}`, MAX_FILE_BYTES)),
    );
    return {
      version,
      texts: Object.fromEntries(names.flatMap((name, index) => toEntries(name, texts[index]))),
    };
  };

  const readParts = async (groups: ContainerGroups, parts: readonly GroupPart[]) => {
    const read = async (part: GroupPart) =>
      toEntries(part, groups[part] && (await readTexts(part, groups[part])));
    return Object.fromEntries((await Promise.all(parts.map(read))).flat());
  };

  return {
    async read(target) {
      const { pid, ownNetwork } = checkTarget(target);
      const startTicks = await readStartTicks(pid);
      const groups =
        pid !== undefined && startTicks === undefined ? undefined : await locate(target);
      if (groups === undefined) return undefined;
      // Read the CPU counter first, because rates depend on it most. The middle of that read is the
      // time of the sample.
      const beforeMs = clock.now();
      const cpuTexts = await readParts(groups, CPU_PARTS);
      const atMs = (beforeMs + clock.now()) / 2;
      const texts = { ...cpuTexts, ...(await readParts(groups, OTHER_PARTS)) };
      const netDev =
        ownNetwork && pid !== undefined
          ? await files.readText(`/proc/${pid}/net/dev`, MAX_FILE_BYTES)
          : undefined;
      if ((await readStartTicks(pid)) !== startTicks || (pid === undefined && isEmpty(texts)))
        return undefined;
      const sampleTexts = { groups: texts, ...definedFields({ netDev }) };
      return toSample(toSource(groups, pid, startTicks), atMs, sampleTexts);
    },
  };
}

/** Parts with the CPU counter. */
const CPU_PARTS: readonly GroupPart[] = ['cpuacct', 'cpu', 'unified'];
const OTHER_PARTS: readonly GroupPart[] = ['memory', 'io', 'pids'];

function checkTarget(target: ContainerTarget): ContainerTarget {
  const { pid, cgroupPath } = target;
  if (pid === undefined && cgroupPath === undefined) {
    throw new InvalidInputError([
      {
        field: '',
        message: 'name a container by the pid of a process in it, the path of its group, or both',
      },
    ]);
  }
  if (pid !== undefined && !(Number.isSafeInteger(pid) && pid > 0)) {
    throw new InvalidInputError([
      {
        field: 'pid',
        message: `${pid} is not a process id; process ids are whole numbers above 0`,
      },
    ]);
  }
  return target;
}

/** Returns true when no file of any group exists. */
const isEmpty = (groups: Readonly<Record<string, GroupTexts>>): boolean =>
  Object.values(groups).every(({ texts }) => Object.keys(texts).length === 0);

/**
 * Identifies the counters of a sample: the directories of the groups, and the process with its
 * start time. A pid may be reused and a group created again at the same path; the start time
 * differs then.
 */
function toSource(
  groups: ContainerGroups,
  pid: number | undefined,
  startTicks: bigint | undefined,
): string {
  const directories = new Set(Object.values(groups).map(({ directory }) => directory));
  return [...(pid === undefined ? [] : [`${pid}@${startTicks}`]), ...directories].join(' ');
}

/** Returns one entry for a record; none for undefined. */
const toEntries = <Value>(
  key: string,
  value: Value | undefined,
): readonly (readonly [string, Value])[] => (value === undefined ? [] : [[key, value]]);
