import { readFileSync, statSync } from 'node:fs';
import { constants } from 'node:os';
import { formatExitReason } from '@cloudless/runtime';

/** Exit code and reason of an ended main process. */
export interface ProcessEnd {
  /** 0 to 255, or -1 when the exit code is unknown. */
  readonly exitCode: number;
  readonly reason: string;
  /** Time of the end in milliseconds since the Unix epoch; undefined when no guard recorded it. */
  readonly finishedAtMs?: number;
}

/**
 * The end of a process whose exit code is unknown, because its guard was killed or could not write
 * the exit code.
 */
export const UNKNOWN_END: ProcessEnd = { exitCode: -1, reason: formatExitReason(-1) };
/** End of a process whose machine was restarted. */
export const LOST_WITH_MACHINE: ProcessEnd = { exitCode: -1, reason: 'lost with the machine' };

/** Converts the result of a child process. Signal n becomes exit code 128 + n, as in shells. */
export function toProcessEnd(code: number | null, signal: NodeJS.Signals | null): ProcessEnd {
  const exitCode = signal === null ? (code ?? 0) : 128 + constants.signals[signal];
  return { exitCode, reason: formatExitReason(exitCode, signal ?? undefined) };
}

/** Converts the exit status of a shell, in which 128 + n stands for signal n. */
export function fromShellStatus(status: number): ProcessEnd {
  const [signal] =
    Object.entries(constants.signals).find(([, value]) => value === status - 128) ?? [];
  return { exitCode: status, reason: formatExitReason(status, signal) };
}

/** Reads the exit status that a guard wrote. Undefined when the file is missing or incomplete. */
export function readProcessEnd(file: string): ProcessEnd | undefined {
  try {
    const [, status] = /^(\d{1,3})\n$/.exec(readFileSync(file, 'utf8')) ?? [];
    if (status === undefined) return undefined;
    return { ...fromShellStatus(Number(status)), finishedAtMs: Math.trunc(statSync(file).mtimeMs) };
  } catch {
    return undefined;
  }
}
