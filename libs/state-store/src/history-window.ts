import type { Revision } from './state-store.js';

/**
 * A piece of history that is kept or dropped as a whole: the transactions from `first` to `last`.
 */
export interface HistorySegment {
  readonly first: Revision;
  readonly last: Revision;
  readonly changes: number;
  /** Room that the engine needs for it. */
  readonly bytes: number;
}

/** How much history an engine keeps. */
export interface HistoryLimits {
  /** The newest changes that are kept in any case, as long as their bytes allow. */
  readonly changes: number;
  /** Bytes that are exceeded by the newest group of transactions at most. */
  readonly bytes: number;
}

/**
 * Decides which history to keep: at least the newest `changes`, unless they exceed `bytes`. Older
 * segments go in batches, once there are a quarter more changes than the limit or the bytes are
 * exceeded, so that dropping costs little per transaction.
 */
export class HistoryWindow {
  private changes: number;
  private bytes: number;

  /** @param segments - What is retained already, oldest first. */
  constructor(
    private readonly limits: HistoryLimits,
    private segments: HistorySegment[] = [],
  ) {
    this.changes = countChanges(segments);
    this.bytes = countBytes(segments);
  }

  /** The oldest segments that may go once `added` has joined. Changes nothing. */
  surplusWith(added: readonly HistorySegment[]): readonly HistorySegment[] {
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

  /** Takes note that `added` joined and the `dropped` oldest segments went. */
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
