import { readdirSync, readFileSync, readlinkSync } from 'node:fs';

/**
 * One process of this machine, as /proc shows it; `startToken` tells it from a later one with the
 * same id.
 */
export interface HostProcess {
  readonly pid: number;
  readonly parentPid: number;
  readonly sessionId: number;
  readonly startToken: string;
}

/** Whether a process of this id lives or waits for its parent; a system call, no file. */
export function isThere(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (reason) {
    return (reason as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/**
 * Reads one process.
 * @returns Undefined when it is gone, or has ended and waits for its parent.
 * @see proc_pid_stat(5): fields 3 `state`, 4 `ppid`, 6 `session`, 22 `starttime`
 */
export function readProcess(pid: number, proc = '/proc'): HostProcess | undefined {
  const text = readProc(pid, 'stat', proc);
  if (text === undefined) return undefined;
  // the name before may hold spaces and brackets
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  const [state, parentPid, , sessionId] = fields;
  if (state === 'Z' || state === 'X') return undefined;
  return {
    pid,
    parentPid: Number(parentPid),
    sessionId: Number(sessionId),
    startToken: fields[19] ?? '',
  };
}

/** Every process of this machine. */
export function readProcesses(): readonly HostProcess[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map((name) => readProcess(Number(name)))
    .filter((each) => each !== undefined);
}

/** Names the pid namespace of a process; undefined when it is gone. */
export function pidNamespaceOf(pid: number): string | undefined {
  try {
    return readlinkSync(`/proc/${pid}/ns/pid`);
  } catch {
    return undefined;
  }
}

/**
 * Whether a process is the first of its pid namespace. The kernel ends the namespace with this
 * process.
 * @see proc_pid_status(5), `NSpid`: the ids in all its namespaces, the innermost last
 */
export function isFirstOfNamespace(pid: number): boolean {
  return /^NSpid:.*\t1$/m.test(readProc(pid, 'status') ?? '');
}

/** Executable and arguments; empty when it is gone. */
export function commandLineOf(pid: number): readonly string[] {
  return readProc(pid, 'cmdline')?.replace(/\0$/, '').split('\0') ?? [];
}

/** Sends a signal to that very process. */
export function signalProcess(
  { pid, startToken }: HostProcess,
  signal: 'SIGTERM' | 'SIGHUP' | 'SIGKILL',
): void {
  if (readProcess(pid)?.startToken !== startToken) return;
  try {
    process.kill(pid, signal);
  } catch {
    // it has ended meanwhile
  }
}

function readProc(pid: number, file: string, proc = '/proc'): string | undefined {
  try {
    return readFileSync(`${proc}/${pid}/${file}`, 'utf8');
  } catch {
    return undefined;
  }
}
