import type { LogLine } from '@cloudless/runtime';

/** Largest number of waiting lines: one for each stream. */
const MAX_WAITING = 2;

/**
 * Distinguishes two kinds of lines that runtimes mark as partial: a line that continues in the next
 * line of its stream, and a last line that the container ended without a line feed. A partial line
 * waits until the next line of its stream arrives, or until the log ends.
 */
export class PartialLineResolver {
  /** Lines that were not returned yet: partial lines, and the lines after them. */
  private readonly waiting: LogLine[] = [];

  /** Adds several lines, like {@link PartialLineResolver.push}. */
  pushAll(lines: readonly LogLine[]): readonly LogLine[] {
    if (this.waiting.length === 0 && !lines.some(({ partial }) => partial)) return lines;
    return lines.flatMap((line) => this.push(line));
  }

  /**
   * Adds the next line of the log.
   * @returns The lines that no longer wait, in order.
   */
  push(line: LogLine): readonly LogLine[] {
    this.waiting.push(line);
    let ready = 0;
    while (ready < this.waiting.length && this.isResolved(ready)) ready += 1;
    return this.waiting.splice(0, ready);
  }

  /**
   * Returns the waiting lines, in order.
   * @param isComplete - True when the log is complete. The last line of each stream is then no
   *   longer marked as partial.
   */
  finish(isComplete: boolean): readonly LogLine[] {
    const rest = this.waiting.splice(0);
    return rest.map((line, index) => {
      const continues = rest.slice(index + 1).some(({ stream }) => stream === line.stream);
      return isComplete && line.partial && !continues ? { ...line, partial: false } : line;
    });
  }

  /** Returns true when the waiting line at this index need not wait any more. */
  private isResolved(index: number): boolean {
    const line = this.waiting[index];
    if (line === undefined || !line.partial || this.waiting.length - index > MAX_WAITING)
      return true;
    return this.waiting.slice(index + 1).some(({ stream }) => stream === line.stream);
  }
}
