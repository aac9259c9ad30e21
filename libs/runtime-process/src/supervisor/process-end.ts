import { readFileSync, statSync } from 'node:fs';
import { constants } from 'node:os';
import { exitReason } from '@cloudless/runtime';

/** How a main process ended. */
export interface ProcessEnd {
  readonly exitCode: number;
  readonly reason: string;
  /** When, if that was written down: wall-clock milliseconds. */
  readonly finishedAtMs?: number;
}

/** Ended out of sight: the guard of the process was killed, or could not write the exit code down. */
export const UNSEEN: ProcessEnd = { exitCode: -1, reason: exitReason(-1) };
/** The machine was started anew since. */
export const LOST: ProcessEnd = { exitCode: -1, reason: 'lost with the machine' };

/** Exit code as shells count, and the phrase for it. */
export function endOf(code: number | null, signal: NodeJS.Signals | null): ProcessEnd {
  const exitCode = signal === null ? (code ?? 0) : 128 + constants.signals[signal];
  return { exitCode, reason: exitReason(exitCode, signal ?? undefined) };
}

/** As {@link endOf}, of an exit status as a shell tells it: 128 + n stands for signal n. */
export function endOfStatus(status: number): ProcessEnd {
  const [signal] = Object.entries(constants.signals).find(([, number]) => number === status - 128) ?? [];
  return { exitCode: status, reason: exitReason(status, signal) };
}

/** What a guard wrote down: one line with the exit status. Undefined when there is none, or half of one. */
export function readEnd(file: string): ProcessEnd | undefined {
  try {
    const [, status] = /^(\d{1,3})\n$/.exec(readFileSync(file, 'utf8')) ?? [];
    if (status === undefined) return undefined;
    return { ...endOfStatus(Number(status)), finishedAtMs: Math.trunc(statSync(file).mtimeMs) };
  } catch {
    return undefined;
  }
}
