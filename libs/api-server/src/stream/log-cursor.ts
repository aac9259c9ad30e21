import { create } from '@bufbuild/protobuf';
import { LogPositionSchema, decodeLines, type LogEntry, type LogPosition } from '@cloudless/api';

/**
 * The position of a reader in the logs of a replica, by container. With a cursor, a reader resumes
 * an interrupted stream and drops the entries that it has received before.
 * @example
 * ```ts
 * const cursor = new LogCursor(request.after);
 * for await (const entry of entries) yield* cursor.advance(entry);
 * request.after = cursor.toPositions(); // after an interruption
 * ```
 */
export class LogCursor {
  /** Sequence number of the last received line, by container id. */
  private readonly received: Map<string, bigint>;

  constructor(after: readonly Pick<LogPosition, 'containerId' | 'sequence'>[] = []) {
    this.received = new Map(after.map(({ containerId, sequence }) => [containerId, sequence]));
  }

  /**
   * Returns the part of an entry that was not received yet, and moves the position after the entry.
   * @returns The entry itself, its new lines as single entries, or nothing.
   */
  advance(entry: LogEntry): readonly LogEntry[] {
    const { containerId, sequence, position, skipped } = entry;
    const known = this.received.get(containerId) ?? 0n;
    if (sequence === 0n) {
      if (position !== undefined && !this.received.has(containerId))
        this.received.set(containerId, position);
      if (skipped !== undefined) {
        if (skipped.lastSequence <= known) return [];
        this.received.set(containerId, skipped.lastSequence);
      }
      return [entry];
    }
    const last = entry.lastSequence ?? sequence;
    if (last <= known) return [];
    this.received.set(containerId, last);
    return sequence > known ? [entry] : decodeLines(entry).filter((line) => line.sequence > known);
  }

  /** Returns the positions to resume at, for `StreamLogsRequest.after`. */
  toPositions(): LogPosition[] {
    return [...this.received].map(([containerId, sequence]) =>
      create(LogPositionSchema, { containerId, sequence }),
    );
  }
}

/** Returns true for an entry without content, which only shows that the stream is alive. */
export function isBookmark({ sequence, position, skipped, unreadable }: LogEntry): boolean {
  return (
    sequence === 0n && position === undefined && skipped === undefined && unreadable === undefined
  );
}
