import type { Revision } from '../state-store.js';

/**
 * A part of the history that is kept or dropped as a whole: the transactions from `first` to
 * `last`.
 */
export interface HistorySegment {
  readonly first: Revision;
  readonly last: Revision;
  readonly changes: number;
  /** Bytes that the engine needs for the segment. */
  readonly bytes: number;
}

export interface HistoryLimits {
  /** Newest changes that are always kept, unless they exceed `bytes`. */
  readonly changes: number;
  /** Limit of the bytes of all segments. Only the newest segment may exceed the limit. */
  readonly bytes: number;
}

/**
 * Decides which segments of the history an engine drops. Keeps at least the newest `changes`,
 * unless they exceed `bytes`, and always the newest segment. To drop rarely, nothing is dropped
 * until there are a quarter more changes than the limit, or more bytes than the limit; then
 * segments are dropped down to the limit of changes, or to seven eighths of the bytes.
 */
export class HistoryWindow {
  private changes: number;
  private bytes: number;

  /** @param segments - Segments that the engine already has, oldest first. */
  constructor(
    private readonly limits: HistoryLimits,
    private segments: HistorySegment[] = [],
  ) {
    this.changes = countChanges(segments);
    this.bytes = countBytes(segments);
  }

  /**
   * Returns the segments to drop, oldest first, if `added` is added. Does not modify the window.
   * @param added - New segments, oldest first.
   */
  findSurplus(added: readonly HistorySegment[]): readonly HistorySegment[] {
    const { limits } = this;
    let changes = this.changes + countChanges(added);
    let bytes = this.bytes + countBytes(added);
    const isTooLarge = bytes > limits.bytes;
    if (!isTooLarge && changes <= limits.changes + Math.floor(limits.changes / 4)) return [];
    const targetBytes = isTooLarge ? limits.bytes - Math.floor(limits.bytes / 8) : limits.bytes;
    const newest = added.at(-1) ?? this.segments.at(-1);
    const surplus: HistorySegment[] = [];
    for (const segment of concat(this.segments, added)) {
      if (
        segment === newest ||
        (bytes <= targetBytes && changes - segment.changes < limits.changes)
      )
        break;
      changes -= segment.changes;
      bytes -= segment.bytes;
      surplus.push(segment);
    }
    return surplus;
  }

  /**
   * Records a change of the history.
   * @param dropped - Result of {@link HistoryWindow.findSurplus} for `added`.
   */
  advance(added: readonly HistorySegment[], dropped: readonly HistorySegment[]): void {
    for (const segment of added) this.segments.push(segment);
    if (dropped.length > 0) this.segments = this.segments.slice(dropped.length);
    this.changes += countChanges(added) - countChanges(dropped);
    this.bytes += countBytes(added) - countBytes(dropped);
  }
}

function countChanges(segments: readonly HistorySegment[]): number {
  return segments.reduce((sum, segment) => sum + segment.changes, 0);
}

function countBytes(segments: readonly HistorySegment[]): number {
  return segments.reduce((sum, segment) => sum + segment.bytes, 0);
}

function* concat<T>(first: readonly T[], second: readonly T[]): Iterable<T> {
  yield* first;
  yield* second;
}
