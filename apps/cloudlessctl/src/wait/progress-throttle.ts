/** Shortest time between two lines without further progress, in milliseconds. */
export const LINE_INTERVAL_MS = 5_000;
/** Number of steps of progress that each have a line at once. */
const PROGRESS_STEPS = 10;

/** One state of the work, for an output that is no terminal. */
export interface ProgressLine {
  readonly text: string;
  /** Completed share of the work, from 0 to 1. */
  readonly fraction: number;
  /** True for the last state, which is always printed. */
  readonly isFinal: boolean;
}

/** Decision about a line: print it, drop it, or print it later unless another line comes first. */
export type ThrottleDecision =
  | { readonly kind: 'print' }
  | { readonly kind: 'drop' }
  | { readonly kind: 'later'; readonly inMs: number };

/**
 * Bounds the lines of progress in a log: the first line, one line for each further 10 % of progress,
 * otherwise one line in 5 s, and the last line. A line equal to the one before is dropped.
 */
export class ProgressThrottle {
  private lastText: string | undefined;
  private lastAtMs = 0;
  /** Highest step of progress that had a line. */
  private bestStep = 0;

  /**
   * Decides about a line, and records it when the decision is `print`.
   * @param nowMs - Time in milliseconds, never lower than in the call before.
   */
  decide({ text, fraction, isFinal }: ProgressLine, nowMs: number): ThrottleDecision {
    if (text === this.lastText) return { kind: 'drop' };
    const step = Math.floor(Math.min(1, Math.max(0, fraction)) * PROGRESS_STEPS + 1e-9);
    const waitMs = this.lastAtMs + LINE_INTERVAL_MS - nowMs;
    const isFirst = this.lastText === undefined;
    if (!isFirst && !isFinal && step <= this.bestStep && waitMs > 0)
      return { kind: 'later', inMs: waitMs };
    this.lastText = text;
    this.lastAtMs = nowMs;
    this.bestStep = Math.max(this.bestStep, step);
    return { kind: 'print' };
  }
}
