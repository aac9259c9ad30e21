import type { LogBatch, LogLine, LogRequest } from '../container-runtime.js';

/**
 * Returns true when a line meets the conditions of a request that concern single lines: all but
 * `tailLines` and `follow`.
 */
export function isLineSelected(
  request: LogRequest,
  line: Pick<LogLine, 'sequence' | 'stream' | 'timeMs'>,
): boolean {
  if (request.afterSequence !== undefined && line.sequence <= request.afterSequence) return false;
  if (request.sinceMs !== undefined && line.timeMs < request.sinceMs) return false;
  return request.streams === undefined || request.streams.includes(line.stream);
}

/** Selects the requested lines and detects missing lines. */
export class LineSelection {
  /** Sequence number of the next expected line; undefined while any line may be the first. */
  private nextSequence: bigint | undefined;
  /** Number of lines that may still be selected. A tail has no lines that are written meanwhile. */
  private left: number;

  /**
   * @param from - Sequence number of the first line that is read.
   * @param toSkip - Number of selected lines that come before the requested tail.
   */
  constructor(
    private readonly request: LogRequest,
    from: bigint,
    private toSkip = 0,
  ) {
    // A request for all kept lines has no missing lines before the first kept line.
    this.nextSequence =
      request.afterSequence === undefined && request.tailLines === undefined ? undefined : from;
    this.left = request.follow ? Infinity : (request.tailLines ?? Infinity);
  }

  /**
   * Selects from the next lines of the log.
   * @param lines - The lines after the lines of the previous call.
   * @param skippedBytes - Bytes of log files between the lines of the previous call and `lines`;
   *   undefined when unknown.
   * @returns Undefined when no line is selected and none is missing.
   */
  select(lines: readonly LogLine[], skippedBytes?: number): LogBatch | undefined {
    const [first] = lines;
    const last = lines.at(-1);
    if (first === undefined || last === undefined) return undefined;
    const { nextSequence } = this;
    this.nextSequence =
      nextSequence === undefined || last.sequence >= nextSequence
        ? last.sequence + 1n
        : nextSequence;
    const selected = this.filterLines(lines, first);
    if (nextSequence === undefined || first.sequence <= nextSequence)
      return selected.length === 0 ? undefined : { lines: selected };
    const bytes = skippedBytes === undefined || skippedBytes <= 0 ? {} : { bytes: skippedBytes };
    return {
      lines: selected,
      skipped: { firstSequence: nextSequence, lastSequence: first.sequence - 1n, ...bytes },
    };
  }

  private filterLines(lines: readonly LogLine[], first: LogLine): readonly LogLine[] {
    const { sinceMs, streams, afterSequence = 0n } = this.request;
    const isEverySelected =
      sinceMs === undefined && streams === undefined && first.sequence > afterSequence;
    const selected = isEverySelected
      ? lines
      : lines.filter((line) => isLineSelected(this.request, line));
    if (this.toSkip === 0 && this.left === Infinity) return selected;
    const toSkip = Math.min(this.toSkip, selected.length);
    const kept = selected.slice(toSkip, toSkip + this.left);
    this.toSkip -= toSkip;
    this.left -= kept.length;
    return kept;
  }
}

/** Yields the lines of batches one at a time. */
export async function* flattenBatches(batches: AsyncIterable<LogBatch>): AsyncGenerator<LogLine> {
  for await (const { lines } of batches) yield* lines;
}
