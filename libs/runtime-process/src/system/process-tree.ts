import { readdirSync, readFileSync } from 'node:fs';
import type { ProcessReference } from './process-reference.js';

/** A process of this machine, as `/proc` shows it. */
export interface TreeProcess extends ProcessReference {
  /** Process id of the parent. */
  readonly parent: number;
  /** Process id of the leader of its session. */
  readonly session: number;
}

/**
 * Lists all running processes; empty where there is no `/proc`.
 * @see proc_pid_stat(5): fields 4, 6 and 22
 */
export function readProcesses(): readonly TreeProcess[] {
  if (process.platform !== 'linux') return [];
  return readdirSync('/proc').flatMap((entry) => {
    if (!/^\d+$/.test(entry)) return [];
    try {
      const text = readFileSync(`/proc/${entry}/stat`, 'latin1');
      const [state = '', parent, , session, ...rest] = text
        .slice(text.lastIndexOf(')') + 2)
        .split(' ');
      if (state === 'Z' || state === 'X') return [];
      return [
        {
          pid: Number(entry),
          parent: Number(parent),
          session: Number(session),
          startToken: rest[15] ?? '',
        },
      ];
    } catch {
      return []; // ended meanwhile
    }
  });
}

/** Returns the descendants of a process and the members of the session that it leads. Pure. */
export function findRelatives(
  leader: number,
  processes: readonly TreeProcess[],
): readonly TreeProcess[] {
  const family = new Set<number>([leader]);
  for (let size = 0; size < family.size;) {
    size = family.size;
    for (const { pid, parent, session } of processes)
      if (family.has(parent) || session === leader) family.add(pid);
  }
  return processes.filter(({ pid }) => family.has(pid) && pid !== leader);
}
