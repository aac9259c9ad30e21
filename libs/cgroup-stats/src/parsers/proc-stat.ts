import { parseWhole } from './lines.js';
import { MalformedCgroupFileError } from './malformed.js';

/**
 * Values of `/proc/<pid>/stat`. Ticks are units of `sysconf(_SC_CLK_TCK)`, 100 per second on every
 * Linux in use.
 */
export interface ProcStat {
  readonly pid: number;
  /** Program name, at most 15 bytes; may contain any character, also blanks and brackets. */
  readonly command: string;
  /** One letter: R, S, D, Z, T and others. */
  readonly state: string;
  readonly parentPid: number;
  /** Pid of the session leader. */
  readonly sessionPid: number;
  readonly userTicks: bigint;
  readonly systemTicks: bigint;
  /** CPU time of ended and reaped children, including their own children. */
  readonly childUserTicks: bigint;
  readonly childSystemTicks: bigint;
  /**
   * Start time in ticks since boot. Together with pid and boot id, the start time identifies a
   * process even when its pid is reused.
   */
  readonly startTicks: bigint;
  readonly residentPages: number;
}

/**
 * Parses `/proc/<pid>/stat`. The program name is the text between the first `(` and the last `)`,
 * because the name may contain brackets.
 * @throws {@link MalformedCgroupFileError}
 * @see proc_pid_stat(5)
 */
export function parseProcStat(text: string): ProcStat {
  const open = text.indexOf('(');
  const close = text.lastIndexOf(')');
  if (open < 0 || close < open)
    throw new MalformedCgroupFileError(FILE, 1, 'the name in brackets is missing');
  // Fields are numbered as in the manual page: the state is field 3.
  const fields = text
    .slice(close + 1)
    .trim()
    .split(/\s+/, 22); // up to field 24
  const whole = (field: number): bigint => {
    const value = fields[field - 3];
    if (value === undefined)
      throw new MalformedCgroupFileError(FILE, 1, `field ${field} is missing`);
    return parseWhole(FILE, 1, value);
  };
  const state = fields[0] ?? '';
  if (!/^[A-Za-z]$/.test(state))
    throw new MalformedCgroupFileError(FILE, 1, 'the state is not one letter');
  return {
    pid: Number(parseWhole(FILE, 1, text.slice(0, open).trim())),
    command: text.slice(open + 1, close),
    state,
    parentPid: Number(whole(4)),
    sessionPid: Number(whole(6)),
    userTicks: whole(14),
    systemTicks: whole(15),
    childUserTicks: whole(16),
    childSystemTicks: whole(17),
    startTicks: whole(22),
    residentPages: Number(whole(24)),
  };
}

const FILE = '/proc/<pid>/stat';
