import { setImmediate as nextTurn } from 'node:timers/promises';
import { definedFields, CloudlessError, type Clock } from '@cloudless/base';
import {
  MalformedCgroupFileError,
  parseProcStat,
  sumProcesses,
  type ProcStat,
  type ProcessTexts,
  type SampleResult,
} from '@cloudless/cgroup-stats';
import { MAX_FILE_BYTES, hostFiles, type ProcessFiles } from './file-system.js';

/** Arguments of {@link createProcessReader}. */
export interface ProcessReaderOptions {
  readonly clock: Clock;
  /** Default: the files of this machine. */
  readonly files?: ProcessFiles;
}

/**
 * Reads the resource use of containers that are processes without a cgroup of their own. Such a
 * container consists of all processes of one session.
 */
export interface ProcessReader {
  /**
   * Takes one sample per session. Lists the processes of the machine once for all sessions.
   * @param leaders - Pids of the session leaders.
   * @returns Samples by the pid of the leader, without sessions whose leader has ended.
   * @throws CloudlessError `unimplemented` when there is no `/proc`; errors of the file system
   *   unchanged.
   */
  read(leaders: readonly number[]): Promise<ReadonlyMap<number, SampleResult>>;
}

/** Creates a reader. It holds no resources and need not be closed. */
export function createProcessReader({
  clock,
  files = hostFiles,
}: ProcessReaderOptions): ProcessReader {
  const readProcFile = (pid: number, name: string) =>
    files.readText(`/proc/${pid}/${name}`, MAX_FILE_BYTES);

  /** Returns the pids of the members of each session, by leader; the leader is the first member. */
  const findMembers = async (
    leaders: readonly number[],
  ): Promise<ReadonlyMap<number, readonly number[]>> => {
    const members = new Map(leaders.map((leader) => [leader, [leader]]));
    const pids = await files.processIds();
    if (pids === undefined)
      throw new CloudlessError(
        'unimplemented',
        'statistics of processes need /proc, which this machine does not have',
      );
    for (const [index, pid] of pids.entries()) {
      if (index % PROCESSES_PER_TURN === PROCESSES_PER_TURN - 1) await nextTurn();
      const stat = members.has(pid) ? undefined : await readProcFile(pid, 'stat');
      if (stat !== undefined) members.get(tryParseStat(stat)?.sessionPid ?? 0)?.push(pid);
    }
    return members;
  };

  const readSession = async (
    leader: number,
    members: readonly number[],
  ): Promise<SampleResult | undefined> => {
    const beforeMs = clock.now();
    const stats = await Promise.all(
      members.map(async (pid) => ({ pid, stat: await readProcFile(pid, 'stat') })),
    );
    const atMs = (beforeMs + clock.now()) / 2;
    const leaderStat = stats[0]?.stat;
    if (leaderStat === undefined) return undefined;
    const processes = await Promise.all(
      stats.map(async ({ pid, stat }): Promise<readonly ProcessTexts[]> => {
        // Since the list was read, the pid may have been reused by a process of another session.
        if (stat === undefined || (pid !== leader && tryParseStat(stat)?.sessionPid !== leader))
          return [];
        const [status, io] = [await readProcFile(pid, 'status'), await readProcFile(pid, 'io')];
        return [
          {
            stat,
            ...definedFields({ status, io }),
          },
        ];
      }),
    );
    // The leader may have ended during the reads, and its pid may have been reused.
    const laterStat = await readProcFile(leader, 'stat');
    const source = toSource(leader, leaderStat);
    if (laterStat === undefined || toSource(leader, laterStat) !== source) return undefined;
    return sumProcesses(source, atMs, processes.flat());
  };

  return {
    async read(leaders) {
      const found = new Map<number, SampleResult>();
      if (leaders.length === 0) return found;
      for (const [leader, members] of await findMembers(leaders)) {
        const result = await readSession(leader, members);
        if (result !== undefined) found.set(leader, result);
      }
      return found;
    },
  };
}

/**
 * Number of processes to read before other work of this program may run. These reads take about a
 * millisecond.
 */
const PROCESSES_PER_TURN = 64;

/** Parses `/proc/<pid>/stat`; undefined when the text is malformed. */
function tryParseStat(stat: string): ProcStat | undefined {
  try {
    return parseProcStat(stat);
  } catch (reason) {
    if (reason instanceof MalformedCgroupFileError) return undefined;
    throw reason;
  }
}

/**
 * Identifies a session by the pid of its leader and the start time of the leader, because a pid may
 * be reused. With a malformed stat the start time is `unknown`; the sample then contains the
 * problem.
 */
const toSource = (leader: number, stat: string): string =>
  `${leader}@${tryParseStat(stat)?.startTicks ?? 'unknown'}`;
