import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { errorCodeOf } from '@cloudless/base';
import type { ContainerSignal } from '@cloudless/runtime';

/** Distinguishes a process of this machine from all others until the machine is restarted. */
export interface ProcessIdentity {
  readonly pid: number;
  /**
   * Start time in clock ticks since boot, as the kernel writes it. Distinguishes the process from a
   * later process with the same id.
   */
  readonly startToken: string;
}

/** A process of this machine. */
export interface HostProcess extends ProcessIdentity {
  readonly parentPid: number;
  /** Process id of the leader of the session. */
  readonly sessionId: number;
}

/**
 * Returns true when a process with this id exists, running or zombie. Costs one system call and
 * reads no file.
 */
export function processExists(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (reason) {
    return errorCodeOf(reason) === 'EPERM';
  }
}

/**
 * Reads one process.
 * @param proc - Mount point of `proc`, for tests.
 * @returns Undefined when there is no such process, or the process is a zombie.
 * @see proc_pid_stat(5): fields 3 `state`, 4 `ppid`, 6 `session`, 22 `starttime`
 */
export function readProcess(pid: number, proc = '/proc'): HostProcess | undefined {
  const text = readProc(pid, 'stat', proc);
  if (text === undefined) return undefined;
  // The program name, in brackets before the fields, may itself contain spaces and brackets.
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

/** Returns true while the process runs; false when it is a zombie or its id has a later process. */
export function isRunning({ pid, startToken }: ProcessIdentity): boolean {
  return readProcess(pid)?.startToken === startToken;
}

/** Lists all processes of this machine, without zombies. */
export function readProcesses(): readonly HostProcess[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map((name) => readProcess(Number(name)))
    .filter((each) => each !== undefined);
}

/**
 * Returns a text that identifies the pid namespace of a process; undefined when the process does
 * not exist, or this process may not read its namespaces.
 */
export function readPidNamespace(pid: number): string | undefined {
  try {
    return readlinkSync(`/proc/${pid}/ns/pid`);
  } catch {
    return undefined;
  }
}

/** Returns true when a process is in another pid namespace than this process, as containers are. */
export function isInOtherNamespace(pid: number): boolean {
  const namespace = readPidNamespace(pid);
  return namespace !== undefined && namespace !== readPidNamespace(process.pid);
}

/**
 * Returns true when a process is the first of its pid namespace. When the first process ends, the
 * kernel ends all processes of the namespace.
 * @see proc_pid_status(5), `NSpid`: the ids of the process in all its namespaces, the innermost
 *   last
 */
export function isFirstOfNamespace(pid: number): boolean {
  return /^NSpid:.*\t1$/m.test(readProc(pid, 'status') ?? '');
}

/** Reads the executable and the arguments of a process; empty when the process does not exist. */
export function readCommandLine(pid: number): readonly string[] {
  return readProc(pid, 'cmdline')?.replace(/\0$/, '').split('\0') ?? [];
}

/** Sends a signal to a process, unless the id belongs to another process by now. */
export function signalProcess(target: ProcessIdentity, signal: ContainerSignal | 'SIGKILL'): void {
  if (!isRunning(target)) return;
  try {
    process.kill(target.pid, signal);
  } catch {
    // the process has ended meanwhile
  }
}

function readProc(pid: number, file: string, proc = '/proc'): string | undefined {
  try {
    return readFileSync(`${proc}/${pid}/${file}`, 'utf8');
  } catch {
    return undefined;
  }
}
