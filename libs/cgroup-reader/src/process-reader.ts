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

export interface ProcessReaderOptions {
  readonly clock: Clock;
  /** Default: the files of this machine. */
  readonly files?: ProcessFiles;
}

/**
 * Reads resource use of processes without a cgroup of their own, each with all processes of its
 * session.
 */
export interface ProcessReader {
  /**
   * Takes one sample per session. Lists the processes of the machine once for all sessions.
   * @param leaders - Pids of the session leaders.
   * @returns Samples by pid of the leader, without sessions that are gone.
   * @throws CloudlessError `unimplemented` when there is no `/proc`; errors of the file system
   *   unchanged.
   */
  read(leaders: readonly number[]): Promise<ReadonlyMap<number, SampleResult>>;
}

export function createProcessReader({
  clock,
  files = hostFiles,
}: ProcessReaderOptions): ProcessReader {
  const textOf = (pid: number, name: string) =>
    files.readText(`/proc/${pid}/${name}`, MAX_FILE_BYTES);

  /** Returns the members of each session, the leader first. */
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
      const stat = members.has(pid) ? undefined : await textOf(pid, 'stat');
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
      members.map(async (pid) => ({ pid, stat: await textOf(pid, 'stat') })),
    );
    const atMs = (beforeMs + clock.now()) / 2;
    const own = stats[0]?.stat;
    if (own === undefined) return undefined;
    const processes = await Promise.all(
      stats.map(async ({ pid, stat }): Promise<readonly ProcessTexts[]> => {
        // The pid may have been reused since the list was read.
        if (stat === undefined || (pid !== leader && tryParseStat(stat)?.sessionPid !== leader))
          return [];
        const [status, io] = [await textOf(pid, 'status'), await textOf(pid, 'io')];
        return [
          {
            stat,
            ...definedFields({ status, io }),
          },
        ];
      }),
    );
    const now = await textOf(leader, 'stat');
    if (now === undefined || sourceOf(leader, now) !== sourceOf(leader, own)) return undefined;
    return sumProcesses(sourceOf(leader, own), atMs, processes.flat());
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

/** Number of processes to read before other work may run: about a millisecond. */
const PROCESSES_PER_TURN = 64;

/** Returns undefined for a malformed stat. */
function tryParseStat(stat: string): ProcStat | undefined {
  try {
    return parseProcStat(stat);
  } catch (reason) {
    if (reason instanceof MalformedCgroupFileError) return undefined;
    throw reason;
  }
}

/**
 * Identifies a session: a pid may be reused, and the start time distinguishes processes. A
 * malformed stat is reported as a problem of the sample.
 */
const sourceOf = (leader: number, stat: string): string =>
  `${leader}@${tryParseStat(stat)?.startTicks ?? 'unknown'}`;
