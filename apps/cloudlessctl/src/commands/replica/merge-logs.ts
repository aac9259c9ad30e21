import { timestampMs } from '@bufbuild/protobuf/wkt';
import type { LogEntry } from '@cloudless/api';

/** Entries of one log that were received together. */
export interface SourcedEntries<Source> {
  readonly source: Source;
  readonly entries: readonly LogEntry[];
}

/** A log to merge. */
export interface MergedLog<Source> {
  readonly source: Source;
  readonly batches: AsyncIterable<readonly LogEntry[]>;
}

/**
 * Merges stored logs by the times of their lines. Holds one batch of each log in memory.
 * @throws The error of the first log that fails.
 */
export async function* mergeByTime<Source>(
  logs: readonly MergedLog<Source>[],
): AsyncGenerator<SourcedEntries<Source>> {
  const heads = logs.map(({ source, batches }) => ({
    source,
    iterator: batches[Symbol.asyncIterator](),
    entries: [] as readonly LogEntry[],
    index: 0,
  }));
  const refill = async (head: (typeof heads)[number]): Promise<boolean> => {
    while (head.index >= head.entries.length) {
      const next = await head.iterator.next();
      if (next.done === true) return false;
      head.entries = next.value;
      head.index = 0;
    }
    return true;
  };
  try {
    const filled = await Promise.all(heads.map(refill));
    const open = heads.filter((_, index) => filled[index]);
    while (open.length > 0) {
      const [head, ...others] = open.sort((a, b) => timeOfHead(a) - timeOfHead(b));
      if (head === undefined) return;
      // All lines up to the first line of the next log are older than the lines of other logs.
      const limit = Math.min(...others.map(timeOfHead));
      const start = head.index;
      do head.index += 1;
      while (head.index < head.entries.length && timeOfHead(head) <= limit);
      yield { source: head.source, entries: head.entries.slice(start, head.index) };
      if (!(await refill(head))) open.shift();
    }
  } finally {
    await Promise.allSettled(heads.map(async ({ iterator }) => iterator.return?.()));
  }
}

/** Time of the next entry of a log, milliseconds since the epoch; 0 without a time. */
function timeOfHead({
  entries,
  index,
}: {
  readonly entries: readonly LogEntry[];
  readonly index: number;
}): number {
  const time = entries[index]?.time;
  return time === undefined ? 0 : timestampMs(time);
}

/**
 * Merges followed logs in the order in which their entries arrive. Ends when all logs have ended. A
 * log is read further when its last entries were taken, so a slow reader slows all logs.
 * @throws The error of the first log that fails.
 */
export async function* mergeByArrival<Source>(
  logs: readonly MergedLog<Source>[],
): AsyncGenerator<SourcedEntries<Source>> {
  const reads = new Map(
    logs.map((log) => [log, readNext(log, log.batches[Symbol.asyncIterator]())] as const),
  );
  while (reads.size > 0) {
    const { log, iterator, next } = await Promise.race(reads.values());
    if (next.done === true) {
      reads.delete(log);
      continue;
    }
    yield { source: log.source, entries: next.value };
    // The log goes to the end of the map, so that a busy log does not delay the others.
    reads.delete(log);
    reads.set(log, readNext(log, iterator));
  }
}

async function readNext<Source>(
  log: MergedLog<Source>,
  iterator: AsyncIterator<readonly LogEntry[]>,
) {
  return { log, iterator, next: await iterator.next() };
}
