import type { LogLine } from '@cloudless/runtime';

/** Lines that wait for the next one of their stream, at most: one for each stream. */
const MAX_WAITING = 2;

/**
 * Tells a line that goes on from one that the container ended without a line end: runtimes mark
 * both as partial. Such a line waits until the next one of its stream comes, or the log is known to
 * be complete.
 */
export class PartialEnds {
  private readonly waiting: LogLine[] = [];

  /** The same for several lines. */
  pushAll(lines: readonly LogLine[]): readonly LogLine[] {
    if (this.waiting.length === 0 && !lines.some(({ partial }) => partial)) return lines;
    return lines.flatMap((line) => this.push(line));
  }

  /** @returns The lines that may be given out now, in order. */
  push(line: LogLine): readonly LogLine[] {
    this.waiting.push(line);
    let ready = 0;
    while (ready < this.waiting.length && this.isDecided(ready)) ready += 1;
    return this.waiting.splice(0, ready);
  }

  /**
   * Nothing more is read. @param isComplete - Nothing more was written either: what is still open
   * has ended.
   */
  finish(isComplete: boolean): readonly LogLine[] {
    const last = this.waiting.splice(0);
    return last.map((line, index) => {
      const goesOn = last.slice(index + 1).some(({ stream }) => stream === line.stream);
      return isComplete && line.partial && !goesOn ? { ...line, partial: false } : line;
    });
  }

  private isDecided(index: number): boolean {
    const line = this.waiting[index];
    if (line === undefined || !line.partial || this.waiting.length - index > MAX_WAITING)
      return true;
    return this.waiting.slice(index + 1).some(({ stream }) => stream === line.stream);
  }
}
