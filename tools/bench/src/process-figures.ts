import { readdirSync, readFileSync } from 'node:fs';

/**
 * USER_HZ of Linux on every platform that Node supports.
 * @see times(2), sysconf(3) _SC_CLK_TCK
 */
const TICKS_PER_SECOND = 100;
/**
 * Index of utime, field 14, among the fields after the closing parenthesis of field 2.
 * @see proc_pid_stat(5)
 */
const USER_TIME_INDEX = 11;
/** Index of stime, field 15, among the same fields. */
const SYSTEM_TIME_INDEX = 12;

/** Returns the CPU time of a process in seconds of one core. */
export function readCpuSeconds(pid: number): number {
  const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  return (Number(fields[USER_TIME_INDEX]) + Number(fields[SYSTEM_TIME_INDEX])) / TICKS_PER_SECOND;
}

/** CPU time of a process in seconds of one core. */
export interface CpuTimes {
  readonly all: number;
  /** The main thread alone: without the compiler, the collection of garbage and the thread pool. */
  readonly mainThread: number;
}

/**
 * Returns the CPU time of the running threads of a process, in nanoseconds instead of the ticks of
 * {@link readCpuSeconds}. A thread that has ended no longer counts.
 */
export function readCpuTimes(pid: number): CpuTimes {
  let [all, mainThread] = [0, 0];
  for (const thread of readdirSync(`/proc/${pid}/task`)) {
    const seconds = readThreadSeconds(pid, thread);
    all += seconds;
    if (thread === String(pid)) mainThread = seconds;
  }
  return { all, mainThread };
}

/**
 * Reads the time of a thread on a CPU, the first field of its file. 0 after its end.
 * @see https://docs.kernel.org/scheduler/sched-stats.html#proc-pid-schedstat
 */
function readThreadSeconds(pid: number, thread: string): number {
  try {
    const text = readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8');
    return Number(text.split(' ')[0]) / 1e9;
  } catch {
    return 0;
  }
}

/**
 * Returns the resident memory of a process in bytes.
 * @see proc_pid_status(5), VmRSS
 */
export function readMemoryBytes(pid: number): number {
  return readStatusBytes(pid, 'VmRSS');
}

/**
 * Returns the largest resident memory of a process so far, in bytes.
 * @see proc_pid_status(5), VmHWM
 */
export function readPeakMemoryBytes(pid: number): number {
  return readStatusBytes(pid, 'VmHWM');
}

/**
 * Returns the part of the resident memory that belongs to mapped files, such as the program and a
 * store, in bytes. The kernel can take these pages at any time.
 * @see proc_pid_status(5), RssFile
 */
export function readFileMemoryBytes(pid: number): number {
  return readStatusBytes(pid, 'RssFile');
}

/** @param field - A field of the status of the process with a size. 0 when there is no such field. */
function readStatusBytes(pid: number, field: string): number {
  const text = readFileSync(`/proc/${pid}/status`, 'utf8');
  const [, kilobytes = '0'] = new RegExp(`^${field}:\\s+(\\d+) kB$`, 'm').exec(text) ?? [];
  return Number(kilobytes) * 1_024;
}

/** Returns the number of open file descriptors of a process. */
export function countOpenFiles(pid: number): number {
  return readdirSync(`/proc/${pid}/fd`).length;
}

/**
 * Returns the process ids of all descendants of a process. Reads the parent ids, because
 * /proc/pid/task/tid/children is not available everywhere.
 */
export function listDescendants(pid: number): readonly number[] {
  const children = new Map<number, number[]>();
  for (const entry of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      const text = readFileSync(`/proc/${entry}/stat`, 'utf8');
      const parent = Number(text.slice(text.lastIndexOf(')') + 2).split(' ')[1]);
      children.set(parent, [...(children.get(parent) ?? []), Number(entry)]);
    } catch {
      // The process has ended meanwhile.
    }
  }
  const found: number[] = [];
  for (let next = [pid]; next.length > 0;) {
    next = next.flatMap((parent) => children.get(parent) ?? []);
    found.push(...next);
  }
  return found;
}
