import type { Revision } from './state-store.js';

/** A piece of history that is kept or dropped as a whole: the transactions from `first` to `last`. */
export interface HistorySegment {
  readonly first: Revision;
  readonly last: Revision;
  readonly changes: number;
}

/**
 * Decides which history to keep: at least the newest `limit` changes. Older segments go in batches, once they exceed a quarter
 * of the limit, so that dropping costs little per transaction.
 */
export class HistoryWindow {
  private changes: number;

  /** @param segments - What is retained already, oldest first. */
  constructor(
    private readonly limit: number,
    private segments: HistorySegment[] = [],
  ) {
    this.changes = countChanges(segments);
  }

  /** The oldest segments that may go once `added` has joined. Changes nothing. */
  surplusWith(added: readonly HistorySegment[]): readonly HistorySegment[] {
    let total = this.changes + countChanges(added);
    if (total <= this.limit + Math.floor(this.limit / 4)) return [];
    const surplus: HistorySegment[] = [];
    for (const segment of concat(this.segments, added)) {
      if (total - segment.changes < this.limit) break;
      total -= segment.changes;
      surplus.push(segment);
    }
    return surplus;
  }

  /** Takes note that `added` joined and the `dropped` oldest segments went. */
  advance(added: readonly HistorySegment[], dropped: readonly HistorySegment[]): void {
    for (const segment of added) this.segments.push(segment);
    if (dropped.length > 0) this.segments = this.segments.slice(dropped.length);
    this.changes += countChanges(added) - countChanges(dropped);
  }
}

function countChanges(segments: readonly HistorySegment[]): number {
  return segments.reduce((sum, segment) => sum + segment.changes, 0);
}

function* concat<T>(first: readonly T[], second: readonly T[]): Iterable<T> {
  yield* first;
  yield* second;
}
