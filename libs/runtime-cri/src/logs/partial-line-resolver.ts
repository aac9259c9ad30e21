import type { LogLine } from '@cloudless/runtime';

/** Most waiting lines: one for each stream. */
const MAX_WAITING = 2;

/**
 * Distinguishes a line that continues from a line that the container ended without a line end:
 * runtimes mark both as partial. Such a line waits for the next line of its stream, or for the end
 * of the log.
 */
export class PartialLineResolver {
  private readonly waiting: LogLine[] = [];

  /** Adds several lines, like {@link PartialLineResolver.push}. */
  pushAll(lines: readonly LogLine[]): readonly LogLine[] {
    if (this.waiting.length === 0 && !lines.some(({ partial }) => partial)) return lines;
    return lines.flatMap((line) => this.push(line));
  }

  /**
   * Adds a line.
   * @returns The lines whose end is known, in order.
   */
  push(line: LogLine): readonly LogLine[] {
    this.waiting.push(line);
    let ready = 0;
    while (ready < this.waiting.length && this.isResolved(ready)) ready += 1;
    return this.waiting.splice(0, ready);
  }

  /**
   * Returns the waiting lines.
   * @param isComplete - Whether the log is complete: a waiting line then has ended.
   */
  finish(isComplete: boolean): readonly LogLine[] {
    const last = this.waiting.splice(0);
    return last.map((line, index) => {
      const goesOn = last.slice(index + 1).some(({ stream }) => stream === line.stream);
      return isComplete && line.partial && !goesOn ? { ...line, partial: false } : line;
    });
  }

  private isResolved(index: number): boolean {
    const line = this.waiting[index];
    if (line === undefined || !line.partial || this.waiting.length - index > MAX_WAITING)
      return true;
    return this.waiting.slice(index + 1).some(({ stream }) => stream === line.stream);
  }
}
