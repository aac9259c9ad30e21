import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

/**
 * Reads the start time of the process with this id, as an opaque text to compare. The start time
 * distinguishes the process from a later process with the same id.
 * @returns Undefined when no such process runs. A zombie, which has ended and waits for its parent,
 *   does not run.
 * @see proc_pid_stat(5): field 3 `state`, field 22 `starttime`; elsewhere `ps -o lstart=`
 */
export function readStartToken(pid: number): string | undefined {
  return process.platform === 'linux' ? readTokenFromProc(pid) : readTokenFromPs(pid);
}

/** Returns true while the process with this id and start token runs. */
export function isAlive(pid: number, startToken: string): boolean {
  return readStartToken(pid) === startToken;
}

/** Reads an id that changes at each boot of the machine. */
export function readBootId(): string {
  return process.platform === 'linux'
    ? readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()
    : execFileSync('/usr/sbin/sysctl', ['-n', 'kern.bootsessionuuid'], { encoding: 'utf8' }).trim();
}

/**
 * Sends a signal to a whole process group.
 * @returns False when the group has no process, or none that this user may signal.
 */
export function signalGroup(groupId: number, signal: 'SIGTERM' | 'SIGHUP' | 'SIGKILL'): boolean {
  try {
    process.kill(-groupId, signal);
    return true;
  } catch {
    return false;
  }
}

function readTokenFromProc(pid: number): string | undefined {
  let text: string;
  try {
    text = readFileSync(`/proc/${pid}/stat`, 'latin1');
  } catch {
    return undefined;
  }
  // The fields follow the name of the program, which may contain spaces and brackets.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  const state = fields[0];
  return state === 'Z' || state === 'X' ? undefined : fields[19];
}

function readTokenFromPs(pid: number): string | undefined {
  try {
    const [state, ...start] = execFileSync('/bin/ps', ['-o', 'state=,lstart=', '-p', String(pid)], {
      encoding: 'utf8',
    })
      .trim()
      .split(/\s+/);
    return state === undefined || state.startsWith('Z') ? undefined : start.join(' ');
  } catch {
    return undefined; // ps fails when there is no such process
  }
}
