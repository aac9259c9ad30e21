import { definedFields } from '@cloudless/base';
import { iterateLines, parseKeyed, parseWhole } from '../parsers/lines.js';
import { MalformedCgroupFileError } from '../parsers/malformed.js';
import { parseProcStat, type ProcStat } from '../parsers/proc-stat.js';
import type { IoUse } from '../parsers/io.js';
import type { ContainerSample, CpuUse, MemoryUse, PidsUse } from './sample.js';
import type { SampleResult } from './to-sample.js';

/** Memory and threads of one process, from `/proc/<pid>/status`. */
export interface ProcMemory {
  /** Resident memory. Absent for a process that has ended and was not reaped yet. */
  readonly residentBytes?: number;
  /** Anonymous resident memory. From kernel 4.5 on. */
  readonly anonBytes?: number;
  /** Resident memory of files and shared memory. From kernel 4.5 on. */
  readonly fileBytes?: number;
  readonly swapBytes?: number;
  /** Number of threads, at least 1. */
  readonly threads: number;
}

/**
 * Parses the memory and thread lines of `/proc/<pid>/status`.
 * @throws {@link MalformedCgroupFileError} when one of these lines is malformed, or `Threads` is
 *   missing.
 * @see proc_pid_status(5)
 */
export function parseProcMemory(text: string): ProcMemory {
  const values = new Map<string, number>();
  for (const { line, text: content } of iterateLines(text)) {
    const colon = content.indexOf(':');
    const key = content.slice(0, Math.max(0, colon));
    if (!STATUS_KEYS.has(key) || values.has(key)) continue;
    const [value = '', unit] = content
      .slice(colon + 1)
      .trim()
      .split(/\s+/, 3);
    if (unit !== (key === 'Threads' ? undefined : 'kB'))
      throw new MalformedCgroupFileError(STATUS, line, `${key} has no unit`);
    values.set(key, Number(parseWhole(STATUS, line, value)) * (unit === undefined ? 1 : KIB));
  }
  const [threads, resident, anon, swap] = ['Threads', 'VmRSS', 'RssAnon', 'VmSwap'].map((key) =>
    values.get(key),
  );
  const [files, shared] = [values.get('RssFile'), values.get('RssShmem')];
  if (threads === undefined) throw new MalformedCgroupFileError(STATUS, 0, 'Threads is missing');
  return {
    threads,
    ...definedFields({ residentBytes: resident, anonBytes: anon }),
    ...(files === undefined || shared === undefined ? {} : { fileBytes: files + shared }),
    ...definedFields({ swapBytes: swap }),
  };
}

const STATUS = '/proc/<pid>/status';
const STATUS_KEYS: ReadonlySet<string> = new Set([
  'VmRSS',
  'RssAnon',
  'RssFile',
  'RssShmem',
  'VmSwap',
  'Threads',
]);
const KIB = 1_024;

/**
 * Parses `/proc/<pid>/io`: block I/O of the process and its reaped children.
 * @throws {@link MalformedCgroupFileError}
 * @see proc_pid_io(5)
 */
export function parseProcIo(text: string): IoUse {
  const keyed = parseKeyed('/proc/<pid>/io', text, ['read_bytes', 'write_bytes'], /:\s*/);
  return {
    readBytes: keyed.requireWhole('read_bytes'),
    writeBytes: keyed.requireWhole('write_bytes'),
  };
}

/** Texts of the files of one process. */
export interface ProcessTexts {
  /** Text of `/proc/<pid>/stat`. */
  readonly stat: string;
  /** Text of `/proc/<pid>/status`; absent when the process has ended meanwhile. */
  readonly status?: string;
  /** Text of `/proc/<pid>/io`; absent also when this user may not read the file. */
  readonly io?: string;
}

/**
 * Builds a sample as the sum over processes without a group of their own. CPU time and block I/O
 * include reaped children. The use of a child that another process reaps disappears when the child
 * ends, so a counter may decrease. Shared memory counts for each process. A malformed file makes
 * its part of the sample absent, and no other part.
 * @param source - Identity of the counters, see {@link ContainerSample}.
 * @param atMs - Monotonic time in milliseconds at which the `stat` files were read.
 * @param processes - The texts of all processes.
 */
export function sumProcesses(
  source: string,
  atMs: number,
  processes: readonly ProcessTexts[],
): SampleResult {
  const problems: MalformedCgroupFileError[] = [];
  const tryParse = <Part>(read: () => Part | undefined): Part | undefined => {
    try {
      return read();
    } catch (reason) {
      if (!(reason instanceof MalformedCgroupFileError)) throw reason;
      problems.push(reason);
      return undefined;
    }
  };
  const memories = tryParse(() =>
    processes.flatMap(({ status }) => (status === undefined ? [] : [parseProcMemory(status)])),
  );
  const parts = {
    cpu: tryParse(() => sumCpu(processes.map(({ stat }) => parseProcStat(stat)))),
    memory: memories && sumMemory(memories),
    io: tryParse(() => sumIo(processes)),
    pids: memories && sumThreads(memories),
  };
  const present = Object.fromEntries(
    Object.entries(parts).filter(([, part]) => part !== undefined),
  );
  return {
    sample: { source, origin: 'processes', atMs, ...present } satisfies ContainerSample,
    problems,
  };
}

function sumCpu(stats: readonly ProcStat[]): CpuUse {
  const userNsec = sum(stats, (stat) => stat.userTicks + stat.childUserTicks) * NSEC_PER_TICK;
  const systemNsec = sum(stats, (stat) => stat.systemTicks + stat.childSystemTicks) * NSEC_PER_TICK;
  return { usageNsec: userNsec + systemNsec, userNsec, systemNsec };
}

/** 100 ticks per second, see {@link ProcStat}. */
const NSEC_PER_TICK = 10_000_000n;

function sumMemory(memories: readonly ProcMemory[]): MemoryUse {
  const total = (of: (memory: ProcMemory) => number | undefined): number =>
    memories.reduce((soFar, memory) => soFar + (of(memory) ?? 0), 0);
  const usageBytes = total(({ residentBytes }) => residentBytes);
  const hasKinds = memories.some(({ fileBytes }) => fileBytes !== undefined);
  return {
    usageBytes,
    workingSetBytes: usageBytes,
    ...(hasKinds
      ? {
          fileBytes: total(({ fileBytes }) => fileBytes),
          anonBytes: total(({ anonBytes }) => anonBytes),
        }
      : {}),
    swapBytes: total(({ swapBytes }) => swapBytes),
  };
}

/**
 * Returns the sum over all processes; undefined when the block I/O of a running one is not
 * readable.
 */
function sumIo(processes: readonly ProcessTexts[]): IoUse | undefined {
  const uses: IoUse[] = [];
  for (const { io, status } of processes) {
    if (io !== undefined) uses.push(parseProcIo(io));
    else if (status !== undefined) return undefined;
  }
  return {
    readBytes: sum(uses, ({ readBytes }) => readBytes),
    writeBytes: sum(uses, ({ writeBytes }) => writeBytes),
  };
}

const sumThreads = (memories: readonly ProcMemory[]): PidsUse => ({
  current: memories.reduce((soFar, { threads }) => soFar + threads, 0),
});

function sum<Item>(items: readonly Item[], of: (item: Item) => bigint): bigint {
  return items.reduce((soFar, item) => soFar + of(item), 0n);
}
