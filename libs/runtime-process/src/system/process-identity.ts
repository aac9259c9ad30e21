import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

/**
 * Reads when the process with this id started, as text to compare. The id alone may have been given
 * to another process since.
 * @returns Undefined when no such process runs. A zombie, which has ended and waits for its parent,
 *   does not run.
 * @see proc_pid_stat(5): field 3 `state`, field 22 `starttime`; elsewhere `ps -o lstart=`
 */
export function readStartToken(pid: number): string | undefined {
  return process.platform === 'linux' ? readTokenFromProc(pid) : readTokenFromPs(pid);
}

/** Returns whether the process with this id and start token still runs. */
export function isAlive(pid: number, startToken: string): boolean {
  return readStartToken(pid) === startToken;
}

/** Reads an id that changes at each boot of the machine. */
export function readBootId(): string {
  return process.platform === 'linux'
    ? readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()
    : execFileSync('/usr/sbin/sysctl', ['-n', 'kern.bootsessionuuid'], { encoding: 'utf8' }).trim();
}

/** Sends a signal to a whole process group. Returns false when the group has no process. */
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
  // the name before it may contain spaces and brackets
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
