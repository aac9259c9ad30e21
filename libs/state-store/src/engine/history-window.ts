import type { Revision } from '../state-store.js';

/**
 * A part of the history that is kept or dropped as a whole: the transactions from `first` to
 * `last`.
 */
export interface HistorySegment {
  readonly first: Revision;
  readonly last: Revision;
  readonly changes: number;
  /** Space that the engine needs for the segment. */
  readonly bytes: number;
}

export interface HistoryLimits {
  /** Number of newest changes that are always kept while `bytes` allows. */
  readonly changes: number;
  /** Limit of the bytes. Only the newest group of transactions may exceed it. */
  readonly bytes: number;
}

/**
 * Decides which part of the history to keep: at least the newest `changes`, unless they exceed
 * `bytes`. Drops older segments in batches, once the number of changes exceeds the limit by a
 * quarter or the bytes exceed theirs, so that dropping costs little per transaction.
 */
export class HistoryWindow {
  private changes: number;
  private bytes: number;

  /** @param segments - The retained segments, oldest first. */
  constructor(
    private readonly limits: HistoryLimits,
    private segments: HistorySegment[] = [],
  ) {
    this.changes = countChanges(segments);
    this.bytes = countBytes(segments);
  }

  /**
   * Returns the oldest segments that can be dropped after `added` has been added. Changes nothing.
   */
  findSurplus(added: readonly HistorySegment[]): readonly HistorySegment[] {
    const { limits } = this;
    let changes = this.changes + countChanges(added);
    let bytes = this.bytes + countBytes(added);
    const isTooLarge = bytes > limits.bytes;
    if (!isTooLarge && changes <= limits.changes + Math.floor(limits.changes / 4)) return [];
    const wantedBytes = isTooLarge ? limits.bytes - Math.floor(limits.bytes / 8) : limits.bytes;
    const newest = added.at(-1) ?? this.segments.at(-1);
    const surplus: HistorySegment[] = [];
    for (const segment of concat(this.segments, added)) {
      if (
        segment === newest ||
        (bytes <= wantedBytes && changes - segment.changes < limits.changes)
      )
        break;
      changes -= segment.changes;
      bytes -= segment.bytes;
      surplus.push(segment);
    }
    return surplus;
  }

  /** Records that `added` was added and the `dropped` oldest segments were removed. */
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
