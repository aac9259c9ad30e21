import { setImmediate as nextTurn } from 'node:timers/promises';
import { CloudlessError, type Clock } from '@cloudless/base';
import {
  MalformedCgroupFileError,
  parseProcStat,
  sumProcesses,
  type ProcStat,
  type ProcessTexts,
  type SampleResult,
} from '@cloudless/cgroup-stats';
import { MAX_FILE_BYTES, hostFiles, type ProcessFiles } from './file-system.js';

/** Needs of a {@link ProcessReader}. */
export interface ProcessReaderOptions {
  readonly clock: Clock;
  /** Default: the files of this machine. */
  readonly files?: ProcessFiles;
}

/** Reads what processes use that have no cgroup of their own: each with all of its session. */
export interface ProcessReader {
  /**
   * One sample for each session. One look at all processes of the machine serves them all.
   * @param leaders - Pids of the processes that lead the sessions.
   * @returns By pid; of those that are gone, nothing.
   * @throws kind `unimplemented` where there is no `/proc`; errors of the file system as they are.
   */
  read(leaders: readonly number[]): Promise<ReadonlyMap<number, SampleResult>>;
}

export function createProcessReader({
  clock,
  files = hostFiles,
}: ProcessReaderOptions): ProcessReader {
  const textOf = (pid: number, name: string) =>
    files.readText(`/proc/${pid}/${name}`, MAX_FILE_BYTES);

  /** The members of each session, its leader first. */
  const findMembers = async (
    leaders: readonly number[],
  ): Promise<ReadonlyMap<number, readonly number[]>> => {
    const members = new Map(leaders.map((leader) => [leader, [leader]]));
    const pids = await files.processIds();
    if (pids === undefined)
      throw new CloudlessError(
        'unimplemented',
        'statistics of processes: this machine has no /proc',
      );
    for (const [index, pid] of pids.entries()) {
      if (index % TURN === TURN - 1) await nextTurn();
      const stat = members.has(pid) ? undefined : await textOf(pid, 'stat');
      if (stat !== undefined) members.get(parsed(stat)?.sessionPid ?? 0)?.push(pid);
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
        // Another one may have got a pid since it was looked at.
        if (stat === undefined || (pid !== leader && parsed(stat)?.sessionPid !== leader))
          return [];
        const [status, io] = [await textOf(pid, 'status'), await textOf(pid, 'io')];
        return [
          {
            stat,
            ...(status === undefined ? {} : { status }),
            ...(io === undefined ? {} : { io }),
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

/** Processes that are looked at before others get a turn: about a millisecond. */
const TURN = 64;

/** Undefined for a stat that does not read as documented. */
function parsed(stat: string): ProcStat | undefined {
  try {
    return parseProcStat(stat);
  } catch (reason) {
    if (reason instanceof MalformedCgroupFileError) return undefined;
    throw reason;
  }
}

/**
 * A pid may come again; a process that started at another time is another one. Damage is a problem
 * of the sample.
 */
const sourceOf = (leader: number, stat: string): string =>
  `${leader}@${parsed(stat)?.startTicks ?? 'unknown'}`;
